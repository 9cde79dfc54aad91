"""Where a path lies: on which file system of a node, and where on the node a container's path is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from shakedown.state.node import Disk


def file_system(path: str, disks: Iterable[Disk]) -> Disk | None:
    """Return the mounted file system that holds a path: the one with the longest mount point above it, and of two on
    one point the newer, which covers the other. None: no known one holds it."""
    wanted = _parts(path)
    holding = [disk for disk in disks if _holds(_parts(disk.mount), wanted)]
    return max(reversed(holding), key=lambda disk: len(_parts(disk.mount)), default=None)


def host_path(inside: str, volumes: Mapping[str, str]) -> str | None:
    """Return where a container's path lies on the host, by `volumes` (host path -> container path, maybe with docker's
    mode as in /data:ro); None where it is in none of them. Of volumes within each other the inner one holds it."""
    path = _parts(inside)
    targets = {tuple(_parts(target.partition(":")[0])): host for host, target in volumes.items()}
    folder = max((target for target in targets if _holds(target, path)), key=len, default=None)
    return None if folder is None else "/".join([targets[folder].rstrip("/"), *path[len(folder) :]]) or "/"


def _parts(path: str) -> list[str]:
    """Split an absolute path into names, without pathlib: its import costs a node more than all checks together."""
    return [part for part in path.split("/") if part not in ("", ".")]


def _holds(folder: Sequence[str], path: Sequence[str]) -> bool:
    return list(path[: len(folder)]) == list(folder)
