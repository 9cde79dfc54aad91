"""Gates on the evidence beside the iteration lines: exit codes, failure signatures, RCCL's warnings, counters."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from shakedown.findings import Verdict
from shakedown.smoke.gates.model import Gate, some
from shakedown.smoke.gates.node_log import NodeLog
from shakedown.smoke.signatures import Match, advice, load

# The levels of NCCL_DEBUG (in any case) at which warnings are printed; RCCL takes any other word for silence.
# https://github.com/NVIDIA/nccl, src/debug.cc, ncclDebugInit, as read on 2026-11-21
HEARD = {"WARN", "INFO", "ABORT", "TRACE"}


def exit_codes(codes: Mapping[str, int | None], participants: Collection[str] = ()) -> Gate:
    """Every rank (or node) ended with 0. None: the code is not known; a participant without a code neither."""
    unseen = sorted({name for name in participants if name not in codes} | {n for n, c in codes.items() if c is None})
    failed = {name: code for name, code in codes.items() if code is not None and code != 0}
    verdict = Verdict.FAIL if failed else Verdict.UNKNOWN if unseen or not codes else Verdict.OK
    said = [f"{name} ended with {code}{_signal(code)}" for name, code in failed.items()]
    if unseen:
        said.append(f"no exit code of {some(unseen)}")
    if not codes and not unseen:
        said.append("no exit codes")
    return Gate(
        name="exit_codes",
        verdict=verdict,
        wanted=0,
        actual={name: codes.get(name) for name in [*codes, *unseen]},
        evidence="; ".join(said) or f"all {len(codes)} ended with 0",
        remedy=None if verdict is Verdict.OK else advice("unfinished"),
    )


def nothing_left(left: Mapping[str, Collection[str]]) -> Gate:
    """On no node anything of the job is left running, and that was seen: a container that nobody could remove, or of
    which the engine said nothing, may still hold GPUs and memory, and the job may not have been over when it was
    judged. `left` says per node what is left, or may be."""
    there = [f"{name}: {what}" for name, found in left.items() for what in found]
    return Gate(
        name="nothing_left",
        verdict=Verdict.UNKNOWN if there else Verdict.OK,
        wanted=0,
        actual=len(there),
        evidence="; ".join(there) or f"all processes and containers of {len(left)} nodes were seen to be gone",
        remedy="look on the nodes named for processes and containers of the run, end them, and run again"
        if there
        else None,
    )


def _signal(code: int) -> str:
    """Which signal it was: Python says -9 where a shell says 137."""
    names = {6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
    name = names.get(-code) or names.get(code - 128)
    return f" ({name})" if name else ""


def no_failure_signature(logs: Mapping[str, NodeLog | None]) -> Gate:
    """No log holds a line that means failure. A log that could not be had is unknown, and so is one line in none."""
    found = [(name, log.failure) for name, log in logs.items() if log and log.failure]
    return _lines_gate("no_failure_signature", logs, found, seen=f"none in {_count(logs)} lines")


def rccl_tuning(logs: Mapping[str, NodeLog | None], rdma: bool = False, nccl_debug: str | None = None) -> Gate:
    """RCCL says nowhere that a tuning did not take.

    `rdma`: the job was to use RDMA between nodes, so a TCP fall back is a failure. `nccl_debug`: the NCCL_DEBUG of the
    run, where it is known; below WARN RCCL keeps silent, and its silence is unknown.
    """
    only_rdma = {signature.name for signature in load().rccl if signature.rdma}
    found = [(name, match) for name, log in logs.items() if log for match in log.rccl]
    found = [(name, match) for name, match in found if rdma or match.name not in only_rdma]
    if not found and nccl_debug is not None and nccl_debug.upper() not in HEARD:
        silent = f"RCCL was silent: NCCL_DEBUG was {nccl_debug or 'not set'}"
        remedy = "run with NCCL_DEBUG=WARN or more"
        return Gate(name="rccl_tuning", verdict=Verdict.UNKNOWN, wanted=0, evidence=silent, remedy=remedy)
    level = f"NCCL_DEBUG={nccl_debug}" if nccl_debug else "NCCL_DEBUG of the run is not known"
    return _lines_gate("rccl_tuning", logs, found, seen=f"no such line in {_count(logs)} lines; {level}")


def quietest(levels: Iterable[str]) -> str:
    """Of the NCCL_DEBUG of several nodes one that keeps warnings back, where there is one."""
    every = list(levels)
    return next((level for level in every if level.upper() not in HEARD), every[0] if every else "")


def _count(logs: Mapping[str, NodeLog | None]) -> int:
    return sum(log.lines for log in logs.values() if log)


def logs_complete(logs: Mapping[str, NodeLog | None], further: Sequence[str] = ()) -> Gate:
    """Every node's log is there, and is all that the job said on that node. `further`: what is wrong with the copies of
    other logs."""
    missing = [node for node, log in logs.items() if log is None]
    said = [f"{node}: {log.incomplete}" for node, log in logs.items() if log and log.incomplete]
    said += [f"no log of {some(missing)}"] if missing else []
    said += ["there are no logs"] if not logs else []
    said += further
    return Gate(
        name="logs_complete",
        verdict=Verdict.UNKNOWN if said else Verdict.OK,
        wanted=len(logs),
        actual=sum(log is not None and not log.incomplete for log in logs.values()),
        unit="logs",
        evidence="; ".join(said) or f"{_count(logs)} lines, as long as on the nodes",
        remedy=advice("incomplete") if said else None,
    )


def _lines_gate(name: str, logs: Mapping[str, NodeLog | None], found: list[tuple[str, Match]], seen: str) -> Gate:
    missing = [node for node, log in logs.items() if log is None]
    cut = [f"{node}: {log.incomplete}" for node, log in logs.items() if log and log.incomplete]
    unseen = bool(missing or cut or not _count(logs))
    verdict = Verdict.FAIL if found else Verdict.UNKNOWN if unseen else Verdict.OK
    said = [f"{node} {match}" for node, match in found]
    if missing:
        said.append(f"no log of {some(missing)}")
    if cut:
        said.append(f"not in the part that is there: {some(cut)}")
    if unseen and not (missing or cut):
        said.append("the logs are empty")
    remedies = dict.fromkeys(f"{match.cause}: {match.remedy}" for _, match in found)
    return Gate(
        name=name,
        verdict=verdict,
        wanted=0,
        actual=None if unseen and not found else len(found),
        unit="lines",
        evidence="; ".join(said) or seen,
        remedy="; ".join(remedies) or (None if verdict is Verdict.OK else advice("unfinished")),
    )


def counters(before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]) -> Gate:
    """No error counter of any node is higher after the run than before.

    Both are node -> counter -> count. Anything but a count (an `Unreadable`), and a counter or node that is missing on
    one side, is unknown; so is one that is lower afterwards: it was reset, and what it had counted is lost.
    """
    risen, unseen, reset, compared = {}, [], [], 0
    for node in dict.fromkeys([*before, *after]):
        if node not in before or node not in after:
            unseen.append(f"{node} ({'before' if node not in before else 'after'} the run)")
            continue
        for name in dict.fromkeys([*before[node], *after[node]]):
            was, is_now = before[node].get(name), after[node].get(name)
            label = f"{node}: {name}"
            if not _is_count(was) or not _is_count(is_now):
                unseen.append(f"{label} ({'after' if _is_count(was) else 'before'} the run)")
                continue
            compared += 1
            if is_now > was:
                risen[label] = f"{was} -> {is_now}"
            elif is_now < was:
                reset.append(f"{label} {was} -> {is_now}")
    verdict = Verdict.FAIL if risen else Verdict.UNKNOWN if unseen or reset or not compared else Verdict.OK
    said = [f"risen: {some([f'{label} {change}' for label, change in risen.items()])}"] if risen else []
    said += [f"reset during the run: {some(reset)}"] if reset else []
    said += [f"not read: {some(unseen)}"] if unseen else []
    said += ["no counter was read"] if not compared and not unseen else []
    return Gate(
        name="counters",
        verdict=verdict,
        wanted="none higher than before",
        actual=risen,
        evidence="; ".join(said) or f"{compared} counters, none higher than before",
        remedy=None if verdict is Verdict.OK else advice("counters"),
    )


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
