"""Profiles: ready-made layers, one data file per GPU model or NIC family, chosen by name."""

from functools import cache
from importlib.resources import files
from typing import Any

from shakedown.common.data import read_toml

_ROOT = files("shakedown.desired") / "profiles"


@cache
def names(kind: str) -> tuple[str, ...]:
    """Return the profiles of a kind: "gpu" or "nic"."""
    return tuple(sorted(entry.name[:-5] for entry in (_ROOT / kind).iterdir() if entry.name.endswith(".toml")))


@cache
def load(kind: str, name: str) -> dict[str, Any]:
    """Return a profile as a layer's values. Raise KeyError if there is none of that name."""
    if name not in names(kind):
        raise KeyError(name)
    return read_toml("shakedown.desired", f"profiles/{kind}/{name}.toml")


def provider_of(family: str) -> str | None:
    """Return a NIC family's libibverbs provider, None if its file names none. Raises KeyError for no family."""
    name: str | None = load("nic", family)["rdma"].get("provider", {}).get("name")
    return name


@cache
def defaults() -> dict[str, Any]:
    """Return the lowest layer."""
    return read_toml("shakedown.desired", "profiles/defaults.toml")
