"""A container registry of the rack: Debian's docker-registry on the bridge, filled without a push.

with serve(lab) as registry:                       # http://198.18.0.1:5000
    image = registry.publish(images.tiny())        # 198.18.0.1:5000/sdlab/tiny:latest@sha256:...
with serve(lab, password="secret") as registry:    # https, user "lab", certificate by registry.authority
with CutProxy(registry, after=1_000_000) as cut:   # the first connection that passes 1 MB is cut there
    image.through(cut)
with serve(lab, port=CACHE_PORT, cache_of=registry):  # a pull-through cache of that registry
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bcrypt

from tests.lab import certificates
from tests.lab.images import Image, digest, sha256
from tests.lab.machine import DIES_WITH_US, SBIN_PATH, LabError, require

if TYPE_CHECKING:
    from tests.lab.cut_proxy import CutProxy
    from tests.lab.hosts import Hosts

PLAIN_PORT, CUT_PORT, CACHE_PORT, TLS_PORT = 5000, 5001, 5002, 5443
PLAIN_PORTS = (PLAIN_PORT, CUT_PORT, CACHE_PORT)
"""Where nodes may speak plain http."""
USER = "lab"


@dataclass(frozen=True)
class Reference:
    """A published image. `str()` is the form to pull: name, tag and digest."""

    address: str
    name: str
    tag: str
    digest: str

    def __str__(self) -> str:
        return f"{self.tagged}@{self.digest}"

    @property
    def tagged(self) -> str:
        return f"{self.address}/{self.name}:{self.tag}"

    def through(self, proxy: CutProxy) -> Reference:
        """The same image by way of a proxy."""
        return replace(self, address=proxy.address)


@dataclass(frozen=True)
class Registry:
    """A running registry. `authority` is the PEM file of the certificate authority that a node needs under certs.d."""

    address: str
    storage: Path
    authority: Path | None = None
    password: str | None = None

    def publish(self, image: Image, tag: str = "latest") -> Reference:
        """Put an image into the registry's storage under a tag, which moves if it was there."""
        blobs = self.storage / "docker/registry/v2/blobs/sha256"
        repository = self.storage / "docker/registry/v2/repositories" / image.name
        manifest, config = image.manifest(), image.config()
        for path in image.layers:
            _link_blob(blobs, repository, digest(path), path)
        _write_blob(blobs, sha256(config), config)
        _note(repository / "_layers", sha256(config))
        _write_blob(blobs, sha256(manifest), manifest)
        _note(repository / "_manifests/revisions", sha256(manifest))
        _note(repository / f"_manifests/tags/{tag}/index", sha256(manifest))
        _set(repository / f"_manifests/tags/{tag}/current/link", sha256(manifest))
        return Reference(self.address, image.name, tag, sha256(manifest))

    def trust_on(self, root: Path) -> None:
        """Let the docker of a node with file system `root` trust this registry's certificate."""
        if self.authority is not None:
            folder = root / "etc/docker/certs.d" / self.address
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.authority, folder / "ca.crt")


@contextmanager
def serve(
    lab: Hosts[Any],
    *,
    password: str | None = None,
    port: int | None = None,
    stay: bool = False,
    cache_of: Registry | None = None,
) -> Iterator[Registry]:
    """Run a registry on the rack's bridge: plain http, or https with user `lab` and a password. Raises LabError.

    `stay` leaves it to the slot, which ends it when it is cleared (`make lab-up`). `cache_of`: the registry whose
    pull-through cache this one is.
    """
    require("docker-registry")
    host = str(lab.slot.gateway)
    port = port or (TLS_PORT if password else PLAIN_PORT)
    address = f"{host}:{port}"
    folder = lab.slot.disk / f"registry-{port}"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "storage").mkdir(parents=True)
    authority = certificates.make(folder, host) if password else None
    (folder / "config.yml").write_text(json.dumps(_configuration(folder, address, password, cache_of)))
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [*([] if stay else DIES_WITH_US), "docker-registry", "serve", str(folder / "config.yml")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={"PATH": SBIN_PATH, "OTEL_TRACES_EXPORTER": "none"},
            start_new_session=True,
        )
    lab.slot.record(server.pid)
    try:
        _wait(address, authority, server, folder / "log")
        yield Registry(address, folder / "storage", authority, password)
    finally:
        if not stay:
            server.kill()
            server.wait()


def _configuration(
    folder: Path, address: str, password: str | None, cache_of: Registry | None = None
) -> dict[str, object]:
    http: dict[str, object] = {"addr": address, "secret": "of no use to anybody: one server"}
    document: dict[str, object] = {
        "version": "0.1",
        "log": {"level": "info", "accesslog": {"disabled": False}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "storage")}, "redirect": {"disable": True}},
        "http": http,
    }
    if cache_of:
        document["proxy"] = {"remoteurl": f"http://{cache_of.address}"}
    if password:
        http["tls"] = {"certificate": str(folder / "server.crt"), "key": str(folder / "server.key")}
        hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()
        (folder / "htpasswd").write_text(f"{USER}:{hashed}\n")
        document["auth"] = {"htpasswd": {"realm": "lab", "path": str(folder / "htpasswd")}}
    return document


def _wait(address: str, authority: Path | None, server: subprocess.Popen[bytes], log: Path) -> None:
    """Until the registry answers, with 401 where it wants a password."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        connection = (
            http.client.HTTPSConnection(address, timeout=5, context=ssl.create_default_context(cafile=str(authority)))
            if authority
            else http.client.HTTPConnection(address, timeout=5)
        )
        with contextlib.suppress(OSError), contextlib.closing(connection):
            connection.request("GET", "/v2/")
            if connection.getresponse().status in (200, 401):
                return
        time.sleep(0.02)
    raise LabError(f"the registry at {address} did not start: {log.read_text()[-1500:]}")


def _link_blob(blobs: Path, repository: Path, blob_digest: str, source: Path) -> None:
    """Add a large blob by hard link, or by copy from another file system."""
    target = _blob(blobs, blob_digest)
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)
    _note(repository / "_layers", blob_digest)


def _write_blob(blobs: Path, blob_digest: str, content: bytes) -> None:
    target = _blob(blobs, blob_digest)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


def _blob(blobs: Path, blob_digest: str) -> Path:
    name = blob_digest.removeprefix("sha256:")
    return blobs / name[:2] / name / "data"


def _note(folder: Path, blob_digest: str) -> None:
    _set(folder / "sha256" / blob_digest.removeprefix("sha256:") / "link", blob_digest)


def _set(link: Path, blob_digest: str) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.write_text(blob_digest)
