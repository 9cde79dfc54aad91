"""Where ROCm's parts are, in every layout that AMD has published, and versions as numbers.

Up to 7.2: /opt/rocm, or /opt/rocm-7.2.0 without the link. From 7.13: /opt/rocm/core-10.0, with alternatives but none
for `.info`, and RVS and TransferBench in /opt/rocm/extras-10. Tarballs make no links; wheels are `_rocm_sdk_*`
(ROCm/TheRock, build_tools/packaging/linux at 89553ce3; read 2026-11-23). It imports nothing of the probe: it travels
alone, and as text.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from fnmatch import fnmatchcase
from glob import escape, glob
from typing import Iterator, List, Optional, Tuple

TOP = "/opt/rocm"
_WHEELS = "/lib*/python3*/*-packages/_rocm_sdk_*"


def numbers(version: str) -> Tuple[int, ...]:
    """Return the numbers in a version, or in a name that ends with one: text sorts 7.14 behind 10.0."""
    return tuple(int(digits) for digits in re.findall(r"\d{1,18}", version))


def folders(root: str = "") -> Iterator[str]:
    """Yield folders that may hold a part of ROCm, below `root`: ROCM_PATH, /opt/rocm/core, the newest core-*,
    /opt/rocm, its extras, /opt/rocm-*, wheels."""
    seen = set()
    for folder in _candidates(root):
        if folder not in seen and os.path.isdir(root + folder):
            seen.add(folder)
            yield folder


def find(root: str, *parts: str) -> Optional[str]:
    """Return the path of the first part that a folder has ("bin/rocminfo"); of several matches of `*` the newest."""
    for folder in folders(root):
        for part in parts:
            matches = _newest(root, "{}/{}".format(folder, part))
            if matches:
                return matches[0]
    return None


def program(name: str) -> Optional[str]:
    """Return the path of a program of ROCm on this machine; None: it is not installed."""
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folder + "/bin" for folder in folders()))


def _candidates(root: str) -> Iterator[str]:
    named = os.environ.get("ROCM_PATH", "").rstrip("/")
    if named and os.path.exists(root + named + "/.info/version"):
        yield named
    for top in filter(None, (named, TOP)):
        yield top + "/core"
        yield from _newest(root, top + "/core-*")
        yield top
        yield from _extras(root, top)
    yield from _newest(root, TOP + "-*")
    yield from _wheels(root)


def _extras(root: str, top: str) -> List[str]:
    """Return the folders of extras: those for the core's own major version come first."""
    cores = [os.path.realpath(root + top + "/core"), *(root + core for core in _newest(root, top + "/core-*"))]
    major = next((found[:1] for core in cores for found in [numbers(os.path.basename(core))] if found), ())
    extras = sorted(_newest(root, top + "/extras-*"), key=lambda path: numbers(os.path.basename(path))[:1] != major)
    return [*filter(None, [os.environ.get("ROCM_INSTALL_PATH", "").rstrip("/")]), *extras]


def _wheels(root: str) -> Iterator[str]:
    """Yield the folders of wheels: beside `rocm-sdk`, in this Python's environment, in the usual ones."""
    script = shutil.which("rocm-sdk")
    environments = [os.environ.get("VIRTUAL_ENV"), script and os.path.dirname(os.path.dirname(script)), sys.prefix]
    for environment in (*filter(None, environments), "/opt/venv", "/usr/local", "/usr"):
        wheels = [path[len(root) :] for path in glob(escape(root + environment.rstrip("/")) + _WHEELS)]
        # The newest Python's first; of its wheels first the core, which has the version and the tools.
        yield from sorted(wheels, key=lambda path: (numbers(os.path.dirname(path)), "_core" in path), reverse=True)


def _newest(root: str, pattern: str) -> List[str]:
    """Return the paths whose last name fits: without a number, then the newest. Raises OSError for a closed folder."""
    folder, _, name = pattern.rpartition("/")
    try:
        found = [entry for entry in os.listdir(root + folder) if fnmatchcase(entry, name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        error.filename = folder
        raise
    # Of equal numbers the shorter name comes first: rocm-7.2.0.bak is an administrator's copy.
    ordered = sorted(found, key=lambda entry: (not numbers(entry), numbers(entry), -len(entry)), reverse=True)
    return ["{}/{}".format(folder, entry) for entry in ordered]
