"""Devices and volumes of the file: each in the part of the desired state that checks it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

_PROVIDER = re.compile(r"lib(?P<name>\w+)-rdmav\d+\.so")
_NO_DEVICES = ("/dev/shm", "/dev/hugepages", "/dev/mqueue")  # file systems that are mounted below /dev
# Where distributions keep libibverbs' configuration: a NIC family's profile looks there by itself.
_USUAL_CONFIG = ("/etc/libibverbs.d", "/lib/libibverbs.d")


def pairs(volumes: Mapping[str, Any] | Sequence[Any]) -> tuple[dict[str, str], list[str]]:
    """Host path -> container path (with docker's mode, as in /data:ro), and the entries that are neither.

    The older form has an object, the newer one a list of docker's HOST:CONTAINER[:MODE].
    """
    if isinstance(volumes, Mapping):
        items: Iterable[tuple[str, Any]] = volumes.items()
    else:
        items = [(str(entry).partition(":")[0], str(entry).partition(":")[2]) for entry in volumes]
    found, wrong = {}, []
    for host, target in items:
        if host and isinstance(target, str) and target:
            found[host] = target
        else:
            wrong.append(f"{host}:{target}")
    return found, wrong


def sort(volumes: Mapping[str, str], devices: Sequence[str] | None) -> tuple[dict[str, Any], list[str]]:
    """The layer's part for volumes and devices, and what cannot be.

    A folder of devices that the file mounts is given as devices, so that the container may open them. The provider
    library and libibverbs.d belong to the NIC family: the ABI number in the library's name is the node's own.
    """
    plain: dict[str, str] = {}
    given = [str(device) for device in devices or []]
    provider: dict[str, Any] = {}
    wrong = []
    for host, target in volumes.items():
        library = _PROVIDER.fullmatch(PurePosixPath(host).name)
        if host.startswith("/dev/") and not host.startswith(_NO_DEVICES):
            given.append(host)
            wrong += [f"{host}:{target}"] if target.partition(":")[0] != host else []
        elif library:
            provider |= _provider(library["name"], host, target)
        elif PurePosixPath(host).name == "libibverbs.d":
            if host not in _USUAL_CONFIG:
                provider["config_dirs"] = [host]
            wrong += [f"{host}:{target}"] if target.partition(":")[0] != host else []
        else:
            plain[host] = target
    layer: dict[str, Any] = {"rdma": {"provider": provider}} if provider else {}
    smoke: dict[str, Any] = {"volumes": plain} if plain else {}
    if given:
        smoke["devices"] = _without_covered(given)
    return {**layer, "smoke": smoke}, wrong


def _provider(name: str, host: str, target: str) -> dict[str, Any]:
    """A target that ends in .host is a library that is copied over the container's own before the job starts."""
    inside = re.sub(r"-rdmav\d+\.so", "-rdmav{abi}.so", target.partition(":")[0])
    found = {
        "name": name,
        "host_library": re.sub(r"-rdmav\d+\.so", "-rdmav{abi}.so", host),
        "container_library": inside,
    }
    return found | ({"install_as": inside.removesuffix(".host")} if inside.endswith(".host") else {})


def _without_covered(devices: Sequence[str]) -> list[str]:
    """A device in a folder that is given whole is not given twice."""
    unique = list(dict.fromkeys(devices))
    return [each for each in unique if not any(each.startswith(f"{other}/") for other in unique)]
