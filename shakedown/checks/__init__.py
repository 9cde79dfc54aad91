"""Checks: the desired state of a node compared with its state.

A check is a small pure function that carries its name as a decorator; `evaluate` runs all of them. A check says
nothing (None, or no findings) where the desired state does not ask for what it knows about.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable

from shakedown.desired.models import DesiredState
from shakedown.findings import Finding, Verdict
from shakedown.state import NodeState

Check = Callable[[DesiredState, NodeState, str], Finding | Iterable[Finding] | None]

# The order of the findings: what the machine is, how it is tuned, then what hangs on it.
MODULES = (
    "system",
    "tuning",
    "cmdline",
    "pcie",
    "accounts",
    "modules",
    "network",
    "devices",
    "gpu",
    "rdma",
    "provider",
    "images",
    "environment",
    "support",
)

_CHECKS: dict[str, Check] = {}


def check(name: str) -> Callable[[Check], Check]:
    """Register a check under the name that its findings begin with: "mtu" has the findings "mtu.ens1", "mtu.ens2"."""

    def register(function: Check) -> Check:
        if name in _CHECKS:
            raise ValueError(f"two checks are named {name!r}")
        _CHECKS[name] = function
        return function

    return register


def evaluate(desired: DesiredState, state: NodeState, node: str) -> list[Finding]:
    """All findings of one node, in the order of MODULES. Never raises for a bad node: a check that does becomes an
    unknown finding which names it and the error, because what could not be compared is not known to be right."""
    findings: list[Finding] = []
    for name, function in checks().items():
        try:
            result = function(desired, state, node)
            findings += [] if result is None else [result] if isinstance(result, Finding) else list(result)
        except Exception as error:
            evidence = f"the check {name} itself failed: {type(error).__name__}: {error}"
            wanted = "a comparison"
            findings.append(Finding(name=name, node=node, verdict=Verdict.UNKNOWN, wanted=wanted, evidence=evidence))
    return findings


@functools.cache
def checks() -> dict[str, Check]:
    """Every registered check by name, in order."""
    for module in MODULES:
        importlib.import_module(f"{__name__}.{module}")
    return _CHECKS
