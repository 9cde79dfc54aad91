"""Runs on a node (python3 >= 3.8, standard library only): ask a registry which digest a tag has, and how large it is.

Reads one JSON object from standard input, so that no secret stands in argv:
    registry, repository, reference (a tag or a digest), insecure, and optionally username, password, ca (PEM)
and prints one: {"digest": "sha256:...", "compressed_bytes": N} or {"error": kind, "detail": words}.
The kinds are those of pull.py.
"""

from __future__ import annotations

import base64
import hashlib
import json
import platform
import re
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Dict, Optional, Tuple

INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
TIMEOUT_S = 20


class Registry:
    """One repository of a registry, with what it takes to be let in."""

    def __init__(self, job: Dict[str, Any]) -> None:
        self.job = job
        # The name in references is not the host that answers.
        self.host = "registry-1.docker.io" if job["registry"] == "docker.io" else job["registry"]
        self.context = ssl.create_default_context(cadata=job.get("ca"))
        if job.get("insecure"):
            self.context.check_hostname = False
            self.context.verify_mode = ssl.CERT_NONE
        self.scheme = "https"
        self.authorization: Optional[str] = None

    def basic(self) -> Optional[str]:
        """The user's own credentials, or None."""
        if not self.job.get("username"):
            return None
        pair = "{}:{}".format(self.job["username"], self.job.get("password", ""))
        return "Basic " + base64.b64encode(pair.encode()).decode()

    def open(self, url: str, authorization: Optional[str]) -> Any:
        headers = {"Accept": ", ".join(INDEXES + MANIFESTS)}
        if authorization:
            headers["Authorization"] = authorization
        request = urllib.request.Request(url, headers=headers)
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=self.context))
        return opener.open(request, timeout=TIMEOUT_S)

    def manifest(self, reference: str) -> Tuple[bytes, str]:
        """The manifest's bytes and digest."""
        url = "{}://{}/v2/{}/manifests/{}".format(self.scheme, self.host, self.job["repository"], reference)
        try:
            answer = self.open(url, self.authorization)
        except urllib.error.HTTPError as error:
            if error.code != 401 or self.authorization:
                raise
            self.authorization = self.let_in(error.headers.get("WWW-Authenticate", ""))
            answer = self.open(url, self.authorization)
        with answer:
            body = answer.read()
            return body, answer.headers.get("Docker-Content-Digest") or "sha256:" + hashlib.sha256(body).hexdigest()

    def let_in(self, challenge: str) -> Optional[str]:
        """The authorization that a 401 asks for: the credentials themselves, or a token for them (RFC 6750)."""
        kind, _, rest = challenge.partition(" ")
        if kind.lower() != "bearer":
            return self.basic()
        fields = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        realm = fields.pop("realm", "")
        query = urllib.parse.urlencode({key: fields[key] for key in ("service", "scope") if key in fields})
        # Credentials go in clear only where the inventory says so.
        trusted = realm.startswith("https://") or self.job.get("insecure")
        with self.open(realm + "?" + query, self.basic() if trusted else None) as answer:
            token = json.load(answer)
        return "Bearer {}".format(token.get("token") or token["access_token"])


def ask(job: Dict[str, Any]) -> Dict[str, Any]:
    """Digest and compressed size of an image for this machine."""
    registry = Registry(job)
    try:
        body, digest = registry.manifest(job["reference"])
    except urllib.error.HTTPError:
        raise
    except (ssl.SSLError, urllib.error.URLError):
        if not job.get("insecure"):
            raise
        registry.scheme = "http"
        body, digest = registry.manifest(job["reference"])
    document = json.loads(body.decode())
    if "manifests" in document:
        own = {"os": "linux", "architecture": ARCHITECTURES.get(platform.machine(), platform.machine())}
        fitting = [
            entry for entry in document["manifests"] if {key: entry.get("platform", {}).get(key) for key in own} == own
        ]
        if not fitting:
            return {"error": "unknown", "detail": "the image is not built for " + own["architecture"]}
        document = json.loads(registry.manifest(fitting[0]["digest"])[0].decode())
    return {"digest": digest, "compressed_bytes": sum(layer["size"] for layer in document.get("layers", []))}


def explain(error: Exception) -> Dict[str, Any]:
    """The kind of a failure, and its words."""
    if isinstance(error, urllib.error.HTTPError):
        kinds = {401: "login", 403: "login", 404: "unknown"}
        return {"error": kinds.get(error.code, "transport"), "detail": f"HTTP {error.code} {error.reason}"}
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return {"error": "certificate", "detail": reason.verify_message}
    if isinstance(reason, ssl.SSLError):
        # What a server without TLS answers is no TLS record.
        return {"error": "plain" if "WRONG_VERSION" in str(reason) else "transport", "detail": str(reason)}
    kind = "transport" if isinstance(error, OSError) else "answer"
    return {"error": kind, "detail": f"{type(reason).__name__}: {reason}"}


def main() -> None:
    try:
        result = ask(json.load(sys.stdin))
    except Exception as error:
        result = explain(error)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
