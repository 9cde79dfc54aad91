"""Software that jobs find on the node: MPI, RCCL, libibverbs with its providers, the container engine with its images.
Docker is asked over its socket, at a tenth of its command line's cost. But for podman nothing is started."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
from typing import Any, Optional

from . import rocm
from .children import run_tool
from .known import KNOWN
from .tree import Part, Tree, Unreadable, attempt, attempt_or, is_unreadable, pick

_PLACES = KNOWN["software"]
_VERSION = re.compile(r"^#define NCCL_(MAJOR|MINOR|PATCH) (\d+)\s*$", re.MULTILINE)
_RCCL = "librccl.so.1"


def parse_version(lines: list[str]) -> Optional[str]:
    """Return "2.22.3" for the three lines `#define NCCL_MAJOR 2`, ... of rccl.h."""
    found = dict(_VERSION.findall("\n".join(lines)))
    return "{MAJOR}.{MINOR}.{PATCH}".format(**found) if len(found) == 3 else None


def mpi(tree: Tree) -> str:
    """Return which MPI there is, and where."""
    for folder in _PLACES["mpi"]:
        if tree.exists(folder + "/mpirun"):
            kind = "Open MPI" if tree.exists(folder + "/ompi_info") else "MPI"
            return "{} ({}/mpirun)".format(kind, folder)
    raise Unreadable("missing", "mpirun in {}".format(", ".join(_PLACES["mpi"])))


def rccl(tree: Tree) -> str:
    """Return the library with its version: of the development package's header, else of its file name."""
    path = tree.ask("rocm " + _RCCL, rocm.find, tree.root, "lib/" + _RCCL)
    path = path or tree.first(*(folder + "/" + _RCCL for folder in _PLACES["rccl"]))
    if path is None:
        raise Unreadable("missing", _RCCL)
    above = path.rpartition("/lib/")[0]
    header = tree.first(above + "/include/rccl/rccl.h", above + "/include/rccl.h")
    version = parse_version(attempt_or([], tree.lines, header) if header else [])
    version = version or os.path.basename(tree.followed(path)).partition(".so.")[2]
    return "{} ({})".format(version, path)


def read(tree: Tree) -> Part:
    return {"mpi": attempt(mpi, tree), "rccl": attempt(rccl, tree)}


def parse_http(answer: bytes) -> Any:
    """Return the JSON body of an HTTP/1.0 answer; raise Unreadable where the daemon reports an error."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if head.split(None, 2)[1:2] != [b"200"]:
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
            "labels": version_labels(entry.get("Labels")),
        }
        for entry in entries
    ]


def version_labels(labels: Any) -> dict[str, str]:
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
        with handle.makefile("rb") as answer:
            return parse_http(answer.read())


def _described(engine: str, info: Any, images: Any) -> Part:
    """Describe an engine by its own answers."""
    found = {field: attempt(pick, info, *way) for field, way in _PLACES["engines"][engine].items()}
    return dict(found, engine=info if is_unreadable(info) else engine, images=images)


def _docker(tree: Tree, path: str) -> Part:
    where = tree.path(path)
    images = attempt(lambda: parse_images(_ask_docker(where, "/images/json"), "RepoTags"))
    return _described("docker", attempt(_ask_docker, where, "/info"), images)


def _storage_exists(tree: Tree) -> bool:
    """Return whether podman has stored anything: its command line would create folders, and a probe changes nothing."""
    if not tree.live or os.geteuid() == 0:
        return tree.exists("/var/lib/containers/storage")
    return os.path.exists(os.path.expanduser("~/.local/share/containers/storage"))


def _podman(tree: Tree, tool: str) -> Part:
    if not _storage_exists(tree):
        version = attempt(lambda: run_tool([tool, "--version"], 5).split()[-1])
        root = Unreadable("missing", "podman has not stored anything yet").as_part()
        return {"engine": "podman", "version": version, "root": root, "images": [], "running": 0}
    images = attempt(lambda: parse_images(_ask_podman(tool, "images"), "Names"))
    return _described("podman", attempt(_ask_podman, tool, "info"), images)


def _ask_podman(tool: str, command: str) -> Any:
    return json.loads(run_tool([tool, command, "--format", "json"], 5))


def has_engine(tree: Tree) -> bool:
    return bool(tree.first(*_PLACES["docker_sockets"])) or bool(attempt_or("", tree.tool, "podman"))


def read_containers(tree: Tree) -> Part:
    """Read docker where its socket is, else podman where its program is."""
    path = tree.first(*_PLACES["docker_sockets"])
    if path:
        return _docker(tree, path)
    podman = attempt_or(None, tree.tool, "podman")
    if podman:
        return _podman(tree, podman)
    reason = Unreadable("missing", "no docker socket and no podman").as_part()
    return dict.fromkeys(("engine", "version", "root", "images", "running"), reason)


_PROVIDER = re.compile(r"lib(.+)-rdmav([0-9]+)\.so")


def parse_abi(library: bytes) -> int:
    """Return the number in the library's symbol version IBVERBS_PRIVATE_<n>, which its providers' names must carry."""
    found = re.search(rb"IBVERBS_PRIVATE_([0-9]{1,9})", library)
    if found is None:
        raise Unreadable("malformed", "no IBVERBS_PRIVATE_<n> in the library")
    return int(found[1])


def _providers(tree: Tree) -> list[Part]:
    """Describe the files such as libbnxt_re-rdmav34.so: provider and ABI."""
    named = [
        (folder + "/" + name, _PROVIDER.fullmatch(name))
        for folder in _PLACES["providers"]
        for name in tree.names_if_permitted(folder)
    ]
    return [
        {
            "path": path,
            "provider": provider[1],
            "abi": int(provider[2]),
            "sha256": attempt(tree.ask, "sha256 " + path, lambda at: hashlib.sha256(tree.raw(at)).hexdigest(), path),
            "target": tree.target(path),
        }
        for path, provider in named
        if provider
    ]


def _drivers(tree: Tree) -> dict[str, str]:
    """Map the files of libibverbs.d to the name behind `driver`."""
    paths = [folder + "/" + name for folder in _PLACES["drivers"] for name in tree.names_if_permitted(folder)]
    found = {}
    for path in paths:
        rows = (line.split() for line in attempt_or([], tree.lines, path))
        names = [words[1] for words in rows if words[:1] == ["driver"] and len(words) > 1]
        if names:
            found[path] = names[0]
    return found


def read_verbs(tree: Tree) -> Part:
    path = tree.first(*(folder + "/libibverbs.so.1" for folder in _PLACES["verbs"]))
    library = path or Unreadable("missing", "libibverbs.so.1").as_part()
    return {
        "library": library,
        "abi": attempt(tree.ask, "abi", lambda: parse_abi(tree.raw(pick(library)))),
        "providers": _providers(tree),
        "drivers": _drivers(tree),
    }
