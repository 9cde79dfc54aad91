"""The container engine: version, storage, images with digests.

Docker is asked over its socket, which costs a tenth of its command line; podman has no daemon, so its command line is.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

from .children import run_tool
from .tree import Part, Tree, Unreadable, attempt, attempt_or, pick

_DOCKER_SOCKETS = ("/run/docker.sock", "/var/run/docker.sock")


def parse_http(answer: bytes) -> Any:
    """Return the JSON body of an HTTP/1.0 answer; raise Unreadable where the daemon reports an error."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(None, 2)
    if len(status) < 2 or status[1] != b"200":
        raise Unreadable("failed", "docker: " + head.split(b"\r\n", 1)[0].decode("utf-8", "replace"))
    return json.loads(body.decode())


def parse_images(entries: list[dict[str, Any]], tags: str) -> list[Part]:
    """Parse the images of docker (`tags` is "RepoTags") or podman ("Names", and ids without their algorithm's name)."""
    return [
        {
            "id": entry["Id"] if ":" in entry["Id"] else "sha256:" + entry["Id"],
            "tags": [tag for tag in entry.get(tags) or [] if tag != "<none>:<none>"],
            "digests": [digest for digest in entry.get("RepoDigests") or [] if not digest.startswith("<none>")],
            "size_bytes": int(entry["Size"]),
            "labels": versions(entry.get("Labels")),
        }
        for entry in entries
    ]


def versions(labels: Any) -> dict[str, str]:
    """Return the labels that name a version; an image may have hundreds of others."""
    pairs = [(str(key), str(value)) for key, value in (labels or {}).items() if str(key).lower().endswith("version")]
    return {key: value[:100] for key, value in sorted(pairs)[:50]}


def _ask_docker(path: str, request: str) -> Any:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as handle:
        try:
            handle.connect(path)
        except OSError as error:
            error.filename = path
            raise
        # 1.0: the daemon sends the body in one piece and closes.
        handle.sendall("GET {} HTTP/1.0\r\nHost: docker\r\n\r\n".format(request).encode())
        chunks = []
        chunk = handle.recv(65536)
        while chunk:
            chunks.append(chunk)
            chunk = handle.recv(65536)
    return parse_http(b"".join(chunks))


def _docker(tree: Tree, path: str) -> Part:
    where = tree.path(path)
    info = attempt(_ask_docker, where, "/info")
    return {
        "engine": info if "unreadable" in info else "docker",
        "version": attempt(pick, info, "ServerVersion"),
        "root": attempt(pick, info, "DockerRootDir"),
        "images": attempt(lambda: parse_images(_ask_docker(where, "/images/json"), "RepoTags")),
        "running": attempt(pick, info, "ContainersRunning"),
    }


def _storage_exists(tree: Tree) -> bool:
    """Return whether podman has stored anything: its command line would create its folders, and the probe changes
    nothing."""
    home = os.path.expanduser("~")
    if not tree.live or os.geteuid() == 0:
        return tree.exists("/var/lib/containers/storage")
    return os.path.exists(home + "/.local/share/containers/storage")


def _podman(tree: Tree, tool: str) -> Part:
    if not _storage_exists(tree):
        version = attempt(lambda: run_tool([tool, "--version"], 5).split()[-1])
        root = Unreadable("missing", "podman has not stored anything yet").as_part()
        return {"engine": "podman", "version": version, "root": root, "images": [], "running": 0}
    info = attempt(_ask_podman, tool, "info")
    return {
        "engine": info if "unreadable" in info else "podman",
        "version": attempt(pick, info, "version", "Version"),
        "root": attempt(pick, info, "store", "graphRoot"),
        "images": attempt(lambda: parse_images(_ask_podman(tool, "images"), "Names")),
        "running": attempt(pick, info, "store", "containerStore", "running"),
    }


def _ask_podman(tool: str, command: str) -> Any:
    return json.loads(run_tool([tool, command, "--format", "json"], 5))


def is_there(tree: Tree) -> bool:
    return bool(tree.first(*_DOCKER_SOCKETS)) or bool(attempt_or("", tree.tool, "podman"))


def read(tree: Tree) -> Part:
    """Read docker where its socket is, else podman where its program is."""
    path = tree.first(*_DOCKER_SOCKETS)
    if path:
        return _docker(tree, path)
    podman = attempt_or(None, tree.tool, "podman")
    if podman:
        return _podman(tree, podman)
    if not tree.live:
        return dict(tree.recorded("containers"))
    reason = Unreadable("missing", "no docker socket and no podman").as_part()
    return dict.fromkeys(("engine", "version", "root", "images", "running"), reason)
