"""A throw-away certificate authority and a server certificate for one address."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def make(folder: Path, address: str) -> Path:
    """Write server.crt and server.key for an IP address, signed by a new authority; returns the authority's ca.crt."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    server_key = ec.generate_private_key(ec.SECP256R1())
    authority = _name("sdlab authority")
    ca = _builder(authority, authority, authority_key.public_key())
    ca = ca.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    server = _builder(_name(address), authority, server_key.public_key())
    server = server.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), critical=False)
    pem = serialization.Encoding.PEM
    (folder / "ca.crt").write_bytes(ca.sign(authority_key, hashes.SHA256()).public_bytes(pem))
    (folder / "server.crt").write_bytes(server.sign(authority_key, hashes.SHA256()).public_bytes(pem))
    no_password = serialization.NoEncryption()
    key = server_key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, no_password)
    (folder / "server.key").write_bytes(key)
    return folder / "ca.crt"


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=7))
    )
