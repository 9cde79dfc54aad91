"""docs/verdicts.md: findings, metrics, signatures and exit codes, from the code that judges."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from shakedown.checks import MODULES, checks
from shakedown.findings import Verdict
from shakedown.smoke.figures import METRICS
from shakedown.smoke.signatures import Signature, load
from tests.docs.markdown import summary, table

# What a module of checks is about; a module that is not here is an error when the page is written.
SUBJECTS = {
    "system": "system",
    "tuning": "host settings",
    "cmdline": "host settings",
    "pcie": "host settings",
    "accounts": "host settings",
    "modules": "host settings",
    "network": "host settings",
    "devices": "devices",
    "gpu": "GPUs",
    "rdma": "RDMA",
    "provider": "RDMA",
    "images": "images",
    "environment": "the job",
    "support": "the job",
}
MEANING = {
    Verdict.OK: "as it should be, now and after the next boot",
    Verdict.WARN: "advice: shown and counted, and never part of the verdict of a node or a run",
    Verdict.DRIFT: "differs, and an operation, a new login or a reboot would change it",
    Verdict.FAIL: "differs, and a person has to act",
    Verdict.UNKNOWN: "could not be read, with why: missing, not permitted, timed out, malformed, failed. Never ok",
}
ENDS = {
    Verdict.OK: "every node in its desired state, every gate passed; warnings change nothing",
    Verdict.FAIL: "a node unreachable, a check, a gate or an operation failed, fewer nodes than expected",
    Verdict.DRIFT: "drift that no operation could change there: a new login, a reboot, root or a person is needed",
    Verdict.UNKNOWN: "something could not be read: a finding, a gate",
}
_OPERATION = re.compile(r'operation="(\w+\.\w+)"')


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
        module = check.__module__.rpartition(".")[2]
        rows.append((f"`{name}`", SUBJECTS[module], summary(check), _changed_by(check)))
    assert set(MODULES) == set(SUBJECTS)
    return table(("finding", "subject", "what has to be so", "changed by"), rows)


def _changed_by(check: Callable[..., object]) -> str:
    """The operations that the check, and the functions of the checks that it uses, name in a remedy."""
    seen: set[object] = set()
    names: set[str] = set()
    waiting: list[Any] = [check]
    while waiting:
        function = waiting.pop()
        if function in seen:
            continue
        seen.add(function)
        names |= set(_OPERATION.findall(inspect.getsource(function)))
        used = [function.__globals__.get(name) for name in function.__code__.co_names]
        waiting += [
            each for each in used if inspect.isfunction(each) and each.__module__.startswith("shakedown.checks.")
        ]
    return ", ".join(f"`{name}`" for name in sorted(names)) or "a person"


def metrics() -> str:
    """What `expect` can name."""
    rows = [(f"`{each.name}`", each.unit, each.direction) for each in METRICS.values()]
    return table(("metric", "unit", "has to be"), rows)


def signatures() -> str:
    """Every line that means failure, with cause and remedy."""
    data = load()
    titles = {
        "Lines of a training log (`no_failure_signature`)": data.failure,
        "Lines of RCCL (`rccl_tuning`)": data.rccl,
        "Lines of the kernel's log (`kernel_log`, `counters`)": data.kernel,
    }
    parts = [f"### {title}\n\n{_signatures(found)}" for title, found in titles.items()]
    advice = table(("name", "what to do"), [(f"`{each.name}`", each.text) for each in data.advice])
    return "\n".join([*parts, f"### What no single line shows\n\n{advice}"])


def _signatures(found: tuple[Signature, ...]) -> str:
    rows = [
        (f"`{each.name}`", "<br>".join(f"`{text}`" for text in each.text), each.cause, each.remedy) for each in found
    ]
    return table(("name", "a line with", "likely cause", "what to do"), rows)
