"""Where a path lies: on which file system of a node, and where on the node a container's path is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from shakedown.state import Disk


def file_system(path: str, disks: Iterable[Disk]) -> Disk | None:
    """The mounted file system that holds a path: the one with the longest mount point above it, and of two on one point
    the newer, which covers the other. None where nothing known holds it."""
    wanted = PurePosixPath(path)
    holding = [disk for disk in disks if wanted.is_relative_to(disk.mount)]
    return max(reversed(holding), key=lambda disk: len(PurePosixPath(disk.mount).parts), default=None)


def host_path(inside: str, volumes: Mapping[str, str]) -> str | None:
    """Where a container's path lies on the host, by `volumes` (host path -> container path, maybe with docker's mode
    as in /data:ro); None where it is in none of them. Of volumes within each other the inner one holds it."""
    path = PurePosixPath(inside)
    targets = {PurePosixPath(target.partition(":")[0]): host for host, target in volumes.items()}
    folder = max(
        (each for each in targets if path.is_relative_to(each)), key=lambda each: len(each.parts), default=None
    )
    return None if folder is None else str(PurePosixPath(targets[folder]) / path.relative_to(folder))
