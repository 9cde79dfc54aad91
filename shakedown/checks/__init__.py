"""Checks: the desired state of a node compared with its state.

A check is a small pure function with `@check` in a module of this package, and that is all there is to it; `evaluate`
runs all of them. The decorator has the name that its findings have, or begin with ("mtu" has "mtu.ens1", "mtu.ens2"),
and the keys of the desired state that it answers: `@check("mpi", "system.mpi")`. The name stands nowhere else: the
function says what it has compared, and the findings get their names and the node's from here. A check says nothing
(None, or no comparisons) where the desired state does not ask for what it knows about.
"""

from __future__ import annotations

import functools
import importlib
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from shakedown.checks.waivers import on_node, waive
from shakedown.desired.models import DesiredState
from shakedown.state.findings import Comparison, Finding, Remedy, Verdict
from shakedown.state.node import NodeState

if TYPE_CHECKING:  # a node may have Python 3.8
    Compared = Comparison | Iterable[Comparison] | None
    Check = Callable[..., Finding | list[Finding] | None]
    Module = tuple[tuple[str, Check], ...]  # its checks with their names
    Asked = Callable[[Module, DesiredState, NodeState, str], list[Finding]]

# The order of the findings: what the machine is, how it is tuned, then what hangs on it. Those of other modules of this
# package come after them, by the modules' names.
MODULES = (
    "system",
    "storage",
    "kernel",
    "tuning",
    "devices",
    "gpu",
    "gpu_health",
    "rdma",
    "support",
)

# Causes that several checks share (`follows`).
GPUS = ("gpu_count", "gpu_model", "modules.amdgpu")
NIC_MODULES = ("modules.[!a]*",)  # every module but amdgpu
NICS = ("rdma_count", *NIC_MODULES)

REPORT = Remedy(text="report the error as a fault of this project, with the node's state (shakedown show --state)")

_CHECKS: dict[str, Check] = {}
_ANSWERS: dict[str, tuple[str, ...]] = {}
_FOLLOWS: dict[str, tuple[str, ...]] = {}
_NOT_WAIVABLE: set[str] = set()
_MODULES: dict[str, str] = {}  # the one that a check is written in


def check(
    name: str, *keys: str, follows: Iterable[str] = (), waivable: bool = True
) -> Callable[[Callable[[DesiredState, NodeState], Compared]], Check]:
    """Register a check under the name that its findings begin with. It answers these keys of the desired state; a
    section stands for all that is in it. What stands in the module is then the function that gives the findings of a
    node.

    `follows` names the findings whose fault brings about one of this check on the same node, as patterns: a report
    folds the consequence under its cause. After a pattern, "/part" asks that the evidence names a part of the cause.
    `waivable`: a site may accept the finding for a time."""

    def register(function: Callable[[DesiredState, NodeState], Compared]) -> Check:
        @functools.wraps(function)
        def findings(desired: DesiredState, state: NodeState, node: str) -> Finding | list[Finding] | None:
            compared = function(desired, state)
            if compared is None:
                return None
            if isinstance(compared, Comparison):
                return compared.finding(name, node)
            return [comparison.finding(name, node) for comparison in compared]

        if name in _CHECKS:
            raise ValueError(f"two checks are named {name!r}")
        _CHECKS[name], _ANSWERS[name], _MODULES[name] = findings, keys, getattr(function, "func", function).__module__
        _FOLLOWS[name] = tuple(follows)
        if not waivable:
            _NOT_WAIVABLE.add(name)
        return findings

    return register


def check_wanted(
    name: str, key: str, *more: str, **rest: Any
) -> Callable[[Callable[[DesiredState, NodeState, Any], Compared]], Check]:
    """Register a check as `check` does, of what is wanted at its first key, which the function is given besides. Where
    nothing is (None, 0, False, nothing in a list) it is not called."""

    def register(function: Callable[[DesiredState, NodeState, Any], Compared]) -> Check:
        @functools.wraps(function)
        def compared(desired: DesiredState, state: NodeState) -> Compared:
            wanted = operator.attrgetter(key)(desired)
            return function(desired, state, wanted) if wanted else None

        return check(name, key, *more, **rest)(compared)

    return register


def answers() -> Mapping[str, tuple[str, ...]]:
    """Every check's keys of the desired state, by its name."""
    checks()
    return MappingProxyType(_ANSWERS)


def sections() -> set[str]:
    """Return the sections of the desired state that checks read: those that a check answers, and the waivers."""
    named = {key.partition(".")[0] for keys in answers().values() for key in keys} | {"waivers"}
    return named & set(DesiredState.model_fields)


def follows() -> Mapping[str, tuple[str, ...]]:
    """Every check's possible causes, by its name: patterns of the names of findings."""
    checks()
    return MappingProxyType(_FOLLOWS)


def not_waivable() -> frozenset[str]:
    """Return the checks whose findings no site can waive."""
    checks()
    return frozenset(_NOT_WAIVABLE)


def findings_of(module: Module, desired: DesiredState, state: NodeState, node: str) -> list[Finding]:
    """Return what the checks of a module find. A check that raises becomes an unknown finding which names it and the
    error, because what could not be compared is not known to be right."""
    findings: list[Finding] = []
    for name, function in module:
        try:
            found = function(desired, state, node)
            findings += found if isinstance(found, list) else [] if found is None else [found]
        except Exception as error:
            evidence = f"the check {name} itself failed: {type(error).__name__}: {error}"
            failed = Comparison(Verdict.UNKNOWN, wanted="a comparison", evidence=evidence, remedy=REPORT)
            findings.append(failed.finding(name, node))
    return findings


def evaluate(desired: DesiredState, state: NodeState, node: str, ask: Asked = findings_of) -> list[Finding]:
    """All findings of one node, in the order of MODULES, the waived ones as advice; `ask` asks a module's checks. Never
    raises for a bad node."""
    desired = on_node(desired, node)
    modules = (tuple(of_module) for _, of_module in groupby(checks().items(), lambda named: _MODULES[named[0]]))
    findings = [finding for module in modules for finding in ask(module, desired, state, node)]
    return waive(findings, desired, state, _NOT_WAIVABLE) if desired.waivers else findings


@functools.lru_cache
def checks() -> dict[str, Check]:
    """Every registered check by name, in order, whichever module was imported first."""
    here = os.listdir(os.path.dirname(__file__))  # noqa: PTH208, PTH120 - a node would pay 4 ms for pathlib, or pkgutil
    found = sorted(name[:-3] for name in here if name.endswith(".py"))
    found.remove("__init__")
    modules = [f"{__name__}.{module}" for module in (*MODULES, *(name for name in found if name not in MODULES))]
    for module in modules:
        importlib.import_module(module)
    in_order = sorted(_CHECKS, key=lambda name: modules.index(_MODULES[name]))
    functions = {name: _CHECKS[name] for name in in_order}
    _CHECKS.clear()
    _CHECKS.update(functions)
    return _CHECKS
