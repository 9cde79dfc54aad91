"""libibverbs on the host: the library, the provider libraries it loads, and libibverbs.d."""

from __future__ import annotations

import hashlib
import re
from typing import Optional

from .tree import Part, Tree, Unreadable, attempt, attempt_or, pick

_LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64", "/lib64", "/usr/lib")
_PROVIDER_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu/libibverbs", "/usr/lib64/libibverbs", "/usr/lib/libibverbs",
    "/usr/local/lib/libibverbs", "/usr/local/lib/x86_64-linux-gnu/libibverbs", "/usr/local/lib", "/usr/local/lib64",
)  # fmt: skip
_DRIVER_FOLDERS = ("/etc/libibverbs.d", "/usr/local/etc/libibverbs.d", "/usr/lib/libibverbs.d", "/lib/libibverbs.d")


def parse_provider(name: str) -> Optional[tuple[str, int]]:
    """Return ("bnxt_re", 34) for "libbnxt_re-rdmav34.so"; None for other files."""
    named = re.fullmatch(r"lib(.+)-rdmav([0-9]+)\.so", name)
    return (named[1], int(named[2])) if named else None


def parse_abi(library: bytes) -> int:
    """Return the number in the library's symbol version IBVERBS_PRIVATE_<n>, which its providers' names must carry."""
    found = re.search(rb"IBVERBS_PRIVATE_([0-9]{1,9})", library)
    if found is None:
        raise Unreadable("malformed", "no IBVERBS_PRIVATE_<n> in the library")
    return int(found[1])


def parse_driver(lines: list[str]) -> str:
    """Return the name after `driver` in a file of libibverbs.d."""
    names = [line.split()[1] for line in lines if line.startswith("driver") and len(line.split()) > 1]
    if not names:
        raise Unreadable("malformed", "no driver line")
    return names[0]


def _library(tree: Tree) -> str:
    path = tree.first(*(folder + "/libibverbs.so.1" for folder in _LIBRARY_FOLDERS))
    if path is None:
        raise Unreadable("missing", "libibverbs.so.1")
    return path


def _providers(tree: Tree) -> list[Part]:
    found = []
    for folder in _PROVIDER_FOLDERS:
        for name in tree.names_if_permitted(folder):
            provider = parse_provider(name)
            if provider:
                path = folder + "/" + name
                found.append(
                    {
                        "path": path,
                        "provider": provider[0],
                        "abi": provider[1],
                        "sha256": attempt(tree.ask, "sha256 " + path, _sha256, tree, path),
                        "target": tree.target(path),
                    }
                )
    return found


def _sha256(tree: Tree, path: str) -> str:
    return hashlib.sha256(tree.raw(path)).hexdigest()


def _drivers(tree: Tree) -> dict[str, str]:
    found: dict[str, str] = {}
    for folder in _DRIVER_FOLDERS:
        for name in tree.names_if_permitted(folder):
            driver = attempt_or(None, lambda p: parse_driver(tree.lines(p)), folder + "/" + name)
            if driver:
                found[folder + "/" + name] = driver
    return found


def read(tree: Tree) -> Part:
    library = attempt(_library, tree)
    return {
        "library": library,
        "abi": attempt(tree.ask, "abi", lambda: parse_abi(tree.raw(pick(library)))),
        "providers": _providers(tree),
        "drivers": _drivers(tree),
    }
