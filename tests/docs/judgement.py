"""docs/reference/findings.md and catalogue.md: findings, metrics, exit codes, from the code that judges; catalogue."""

from __future__ import annotations

import importlib.util
import inspect
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import CodeType
from typing import Any, get_args

from shakedown.catalogue import Log, Severity, entries
from shakedown.checks import answers, checks
from shakedown.checks.compare import data, remedy_of
from shakedown.gates import rules
from shakedown.logs.metrics import METRICS
from shakedown.node.setting import SETTINGS
from shakedown.state.findings import Verdict
from tests.docs.markdown import prose, summary, table

# What a module of checks is about.
SUBJECTS = {
    "system": "system",
    "tuning": "host settings",
    "devices": "devices",
    "gpu": "GPUs",
    "rdma": "RDMA",
    "lossless": "RDMA",
    "support": "the job",
}
MEANING = {
    Verdict.OK: "as it should be, now and after the next boot",
    Verdict.WARN: "advice: shown and counted, and never part of the verdict of a node or a run",
    Verdict.DRIFT: "differs; an operation, a new login, a reboot, or systemd where a node has none, would change it",
    Verdict.FAIL: "differs, and a person has to act",
    Verdict.UNKNOWN: "could not be read, with why: missing, not permitted, timed out, malformed, failed. Never ok",
}
ENDS = {
    Verdict.OK: "every node in its desired state, every gate passed; warnings change nothing",
    Verdict.FAIL: "a node unreachable, a check, a gate or an operation failed, fewer nodes than expected",
    Verdict.DRIFT: "drift: what a drift check found; of a run, what is left after its changes and waits for a new "
    "login, a reboot, root, systemd or a person",
    Verdict.UNKNOWN: "something could not be read: a finding, a gate",
}
_OF_BENCHMARKS = {"benchmark"}  # groups of evidence that only a benchmark has


def verdicts() -> str:
    """Every verdict, the worst last."""
    order = sorted(Verdict, key=lambda verdict: verdict.severity)
    return table(("verdict", "meaning"), [(f"`{verdict}`", MEANING[verdict]) for verdict in order])


def exit_codes() -> str:
    """The exit codes of the `shakedown` command, by verdict."""
    rows = [(str(verdict.exit_code), f"`{verdict}`", text) for verdict, text in ENDS.items()]
    rows.append(("2", "none", "usage, or input that cannot be used: nothing was done"))
    rows.append(("130", "`fail`", "Ctrl-C, SIGTERM or SIGHUP"))
    return table(("exit code", "verdict", "when"), sorted(rows, key=lambda row: int(row[0])))


def findings() -> str:
    """Every check: a finding of that name, or several that begin with it and a dot."""
    rows = []
    for name, check in checks().items():
        written = inspect.unwrap(check)
        function = written.func if isinstance(written, partial) else written
        subject = SUBJECTS.get(function.__module__.rpartition(".")[2], "")
        asked = ", ".join(f"`{key}`" for key in answers()[name])
        text = SETTINGS[name].doc if isinstance(written, partial) else summary(written)
        rows.append((f"`{name}`", subject, prose(text), asked, _changed_by(name, function)))
    return table(("finding", "subject", "what is compared", "asked for by", "changed by"), rows)


def _changed_by(name: str, check: Callable[..., object]) -> str:
    """The operations that the check, and the functions of the checks that it uses, name in a remedy. Those of a host
    setting are named after it, or set by the unit that keeps it."""
    seen: set[object] = {remedy_of}
    names: set[str] = set()
    if name in SETTINGS:
        names.add("boot.settings" if SETTINGS[name].by_unit else f"tuning.{name}")
    compared = data("per_device.json").get(name, {"compare": []})["compare"]
    names |= {entry["remedy"]["operation"] for entry in compared if "operation" in entry["remedy"]}
    waiting: list[Any] = [check]
    while waiting:
        function = waiting.pop()
        if function in seen:
            continue
        seen.add(function)
        constants, used = _of_code(function.__code__)
        names |= {each for each in constants if _is_operation(each)}
        known = [function.__globals__.get(name) for name in used]
        waiting += [each for each in known if inspect.isfunction(each) and "shakedown.checks" in each.__module__]
    assert all(_is_operation(each) for each in names)
    return ", ".join(f"`{each}`" for each in sorted(names)) or "a person"


def _of_code(code: CodeType) -> tuple[set[str], set[str]]:
    """The texts and the names of a function, with the functions inside it."""
    texts, names = {each for each in code.co_consts if isinstance(each, str)}, set(code.co_names)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            texts, names = texts | _of_code(inner)[0], names | _of_code(inner)[1]
    return texts, names


def _is_operation(name: str) -> bool:
    module, _, function = name.partition(".")
    if (
        not (module.isidentifier() and function.isidentifier())
        or importlib.util.find_spec(f"shakedown.operations.{module}") is None
    ):
        return False
    return hasattr(importlib.import_module(f"shakedown.operations.{module}"), function)


def settings() -> str:
    """Every host setting that has a module of its own."""
    rows = []
    for name, each in SETTINGS.items():
        kept = "the boot unit" if each.by_unit else "a file that the system reads at boot"
        read_at = each.evidence.format("*")
        rows.append((f"`{name}`", prose(each.doc), read_at, each.risk, kept, prose(each.source)))
    return table(("setting", "what it is", "read at", "risk of a change", "kept at boot by", "source"), rows)


def gates() -> str:
    """Every gate: those of a job that is followed, and those of a benchmark."""
    titles = {"A smoke run, and logs from anywhere": False, "A benchmark": True}
    parts = []
    for title, of_benchmark in titles.items():
        found = [rule for rule in rules() if bool(rule.needs & _OF_BENCHMARKS) == of_benchmark]
        rows = [(rule.names or f"`{rule.name}`", prose(rule.holds_when)) for rule in found]
        parts.append(f"{title}:\n\n{table(('gate', 'holds when'), rows)}")
    return "\n".join(parts)


def metrics() -> str:
    """What `expect` can name."""
    rows = [(f"`{each.name}`", each.unit, each.direction) for each in METRICS.values()]
    return table(("metric", "unit", "has to be"), rows)


def catalogue() -> str:
    """The number of entries by log, part and severity."""
    logs: dict[str, Log] = {"the kernel's log": "kernel", "a job's log": "job", "RCCL": "rccl"}
    rows = []
    for title, log in logs.items():
        for part in dict.fromkeys(entry.part for entry in entries(log)):
            count = Counter(entry.severity for entry in entries(log) if entry.part == part)
            rows.append((title, part, *(str(count[severity] or "") for severity in get_args(Severity))))
    return table(("lines of", "part", *get_args(Severity)), rows)
