"""Runs on the controller and on nodes (python3 >= 3.8, standard library only): ask a registry which digest a tag has,
and how large the image is.

Reads one JSON object from standard input, so that no secret stands in argv:
    registry, repository, reference (a tag or a digest), insecure, and optionally username, password, ca (PEM),
    machine (`uname -m` of the nodes, where another machine asks)
and prints one: {"digest": "sha256:...", "compressed_bytes": N} or {"error": kind, "detail": words}.
`token_server` is in it where the credentials went elsewhere than to the registry. The kinds are those of pull.py.

What a registry answers is input: bounded in size and time, its digest computed here, and credentials go to the origin
that they are for and no further.
"""

from __future__ import annotations

import base64
import hashlib
import json
import platform
import re
import signal
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException
from typing import Any, Dict, Optional, Tuple

from shakedown.node.assets.web import Redirects, origin
from shakedown.node.assets.words import Failure, clean

INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
TIMEOUT_S = 20
ALL_S = 120  # for all requests: a server that sends a byte now and then never reaches a timeout of one read
# What registries have to take at most (OCI distribution specification 1.1, "Pushing manifests").
MANIFEST_BYTES = 4 << 20
TOKEN_BYTES = 1 << 20


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
        self.token_server: Optional[str] = None

    def basic(self) -> Optional[str]:
        if not self.job.get("username"):
            return None
        pair = "{}:{}".format(self.job["username"], self.job.get("password", ""))
        return "Basic " + base64.b64encode(pair.encode()).decode()

    def open(self, url: str, authorization: Optional[str], limit: int) -> Tuple[bytes, Any]:
        """Return the answer's body and its headers."""
        headers = {"Accept": ", ".join(INDEXES + MANIFESTS)}
        if authorization:
            headers["Authorization"] = authorization
        request = urllib.request.Request(url, headers=headers)
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=self.context), Redirects())
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            body = answer.read(limit + 1)
            if len(body) > limit:
                raise Failure("answer", "{} answers with more than {} bytes".format(origin(url)[1], limit))
            return body, answer.headers

    def manifest(self, reference: str) -> Tuple[Dict[str, Any], str]:
        """Return the manifest and its computed digest, which must be the requested and the announced one."""
        url = "{}://{}/v2/{}/manifests/{}".format(self.scheme, self.host, self.job["repository"], reference)
        try:
            body, headers = self.open(url, self.authorization, MANIFEST_BYTES)
        except urllib.error.HTTPError as error:
            if error.code != 401 or self.authorization:
                raise
            if origin(error.url)[1:] != origin(url)[1:]:  # it was redirected: not the registry asks
                raise Failure("login", "redirected to {}, which wants a login".format(origin(error.url)[1])) from None
            self.authorization = self.let_in(error.headers.get("WWW-Authenticate", ""))
            body, headers = self.open(url, self.authorization, MANIFEST_BYTES)
        digest = "sha256:" + hashlib.sha256(body).hexdigest()
        announced = headers.get("Docker-Content-Digest")
        for other, by in ((reference if ":" in reference else None, "asked for"), (announced, "announced")):
            if other and other != digest:
                raise Failure("digest", "the manifest is {}, but {} was {}".format(digest, by, other))
        return mapping(body), digest

    def let_in(self, challenge: str) -> Optional[str]:
        """Return the authorization that a 401 asks for: the credentials themselves, or a token for them (RFC 6750).
        Credentials go to the token server that the registry names, as docker sends them, and in clear only where the
        inventory says `insecure`."""
        kind, _, rest = challenge.partition(" ")
        if kind.lower() != "bearer":
            return self.basic()
        fields = dict(re.findall(r'\b(\w+)="([^"]*)"', rest))
        realm = fields.pop("realm", "")
        scheme, host, port = origin(realm)
        if scheme != "https" and not self.job.get("insecure"):
            raise Failure("downgrade", "its token server is http://{}, without TLS".format(host))
        basic = self.basic()
        if basic and (host, port) != origin(self.scheme + "://" + self.host)[1:]:
            self.token_server = "{}:{}".format(host, port)
        query = urllib.parse.urlencode({key: fields[key] for key in ("service", "scope") if key in fields})
        token = mapping(self.open(realm + ("&" if "?" in realm else "?") + query, basic, TOKEN_BYTES)[0])
        word = token.get("token") or token.get("access_token")
        if not isinstance(word, str) or not re.fullmatch(r"[!-~]+", word):
            raise Failure("answer", "{} gives no token".format(host))
        return "Bearer {}".format(word)


def mapping(body: bytes) -> Dict[str, Any]:
    """Parse a JSON object. Failure for anything else."""
    try:
        found = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise Failure("answer", "the answer is not JSON: {}".format(error)) from None
    if not isinstance(found, dict):
        raise Failure("answer", "the answer is not a JSON object")
    return found


def rows(document: Dict[str, Any], key: str) -> Any:
    found = document.get(key) or []
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise Failure("answer", "{} is not a list of objects".format(key))
    return found


def without_tls(error: Exception) -> bool:
    """Return whether the other end speaks no TLS: then, and only then, `insecure` means http."""
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLError):
        return not isinstance(reason, ssl.SSLCertVerificationError)
    return isinstance(reason, (ConnectionError, HTTPException))


def ask(job: Dict[str, Any]) -> Dict[str, Any]:
    """Return digest and compressed size of an image for one kind of machine."""
    registry = Registry(job)
    try:
        document, digest = registry.manifest(job["reference"])
    except (OSError, HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError) or not job.get("insecure") or not without_tls(error):
            raise
        registry.scheme = "http"
        document, digest = registry.manifest(job["reference"])
    if "manifests" in document:
        machine = str(job.get("machine") or platform.machine())
        own = {"os": "linux", "architecture": ARCHITECTURES.get(machine, machine)}
        every = [row for row in rows(document, "manifests") if isinstance(row.get("platform"), dict)]
        fitting = [row for row in every if own.items() <= row["platform"].items()]
        if not fitting:
            return {"error": "unknown", "detail": "the image is not built for " + own["architecture"]}
        part = str(fitting[0].get("digest"))
        if not DIGEST.fullmatch(part):
            raise Failure("answer", "not the digest of a manifest: {}".format(part[:80]))
        document, _ = registry.manifest(part)
    sizes = [row.get("size") for row in rows(document, "layers")]
    if not all(type(size) is int and 0 <= size < 1 << 50 for size in sizes):
        raise Failure("answer", "a layer without a size")
    answer = {"digest": digest, "compressed_bytes": sum(sizes)}
    return {**answer, "token_server": registry.token_server} if registry.token_server else answer


def explain(error: BaseException) -> Dict[str, Any]:
    """Return the kind of a failure, and its words."""
    if isinstance(error, Failure):
        return {"error": error.kind, "detail": clean(error, 500)}
    if isinstance(error, urllib.error.HTTPError):
        kinds = {401: "login", 403: "login", 404: "unknown"}
        kind = kinds.get(error.code, "transport" if error.code >= 400 else "answer")
        return {"error": kind, "detail": clean(f"HTTP {error.code} {error.reason}", 500)}
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return {"error": "certificate", "detail": reason.verify_message}
    if isinstance(reason, ssl.SSLError):
        # What a server without TLS answers is no TLS record.
        return {"error": "plain" if "WRONG_VERSION" in str(reason) else "transport", "detail": clean(reason, 500)}
    kind = "transport" if isinstance(error, (OSError, HTTPException)) else "answer"
    return {"error": kind, "detail": clean(f"{type(reason).__name__}: {reason}", 500)}


def overdue(*_: Any) -> None:
    raise TimeoutError("the registry did not finish within {} s".format(ALL_S))


def main() -> None:
    signal.signal(signal.SIGALRM, overdue)
    signal.alarm(ALL_S)
    try:
        result = ask(json.load(sys.stdin))
    except Exception as error:
        result = explain(error)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
