"""Lines that must not be in any log: of a failure, and of RCCL where a tuning did not take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shakedown.catalogue import advice, entries
from shakedown.findings import Verdict
from shakedown.smoke.gates.model import QUOTED, Outcome, some
from shakedown.smoke.gates.node_log import NodeLog, line_count, logs_of
from shakedown.smoke.gates.registry import gate
from shakedown.smoke.signatures import Match
from shakedown.text import counted

# The levels of NCCL_DEBUG (in any case) at which warnings are printed; RCCL takes any other word for silence.
# https://github.com/NVIDIA/nccl, src/debug.cc, ncclDebugInit, as read on 2026-11-21
SHOWS_WARNINGS = {"WARN", "INFO", "ABORT", "TRACE"}


@gate
def no_failure_signature(logs: Mapping[str, NodeLog | None], unlogged: int = 0) -> Outcome:
    """No node's log holds a line that means failure. A log that could not be had is unknown, and so is one line in
    none. A traceback that is no failure (torchrun's on SIGTERM) is named in the evidence."""
    found = [(name, log.failure) for name, log in logs.items() if log and log.failure]
    passed_over = [f"{name} {each}" for name, log in logs.items() if log for each in log.harmless]
    seen = "; ".join([f"none in {counted(line_count(logs), 'line')}", *passed_over[:QUOTED]])
    return _none_of(logs, found, seen, unlogged)


@gate
def rccl_tuning(
    logs: Mapping[str, NodeLog | None], rdma: bool = False, nccl_debug: str | None = None, unlogged: int = 0
) -> Outcome:
    """RCCL says in no node's log that a tuning did not take.

    `rdma`: the job was to use RDMA between nodes, so a TCP fall back is a failure. `nccl_debug`: the NCCL_DEBUG of the
    run, where it is known; below WARN RCCL keeps silent, and its silence is unknown.
    """
    only_rdma = {signature.name for signature in entries("rccl") if signature.rdma}
    found = [(name, match) for name, log in logs.items() if log for match in log.rccl]
    found = [(name, match) for name, match in found if rdma or match.name not in only_rdma]
    if not found and nccl_debug is not None and nccl_debug.upper() not in SHOWS_WARNINGS:
        silent = f"RCCL was silent: NCCL_DEBUG was {nccl_debug or 'not set'}"
        remedy = "run with NCCL_DEBUG=WARN or more"
        return Outcome(verdict=Verdict.UNKNOWN, wanted=0, evidence=silent, remedy=remedy)
    level = f"NCCL_DEBUG={nccl_debug}" if nccl_debug else "NCCL_DEBUG of the run is not known"
    return _none_of(logs, found, f"no such line in {counted(line_count(logs), 'line')}; {level}", unlogged)


def quietest(levels: Iterable[str]) -> str:
    """Of the NCCL_DEBUG of several nodes one that keeps warnings back, where there is one."""
    every = list(levels)
    return next((level for level in every if level.upper() not in SHOWS_WARNINGS), every[0] if every else "")


def _none_of(logs: Mapping[str, NodeLog | None], found: list[tuple[str, Match]], seen: str, unlogged: int) -> Outcome:
    missing = [node for node, log in logs.items() if log is None]
    cut = [f"{node}: {log.incomplete}" for node, log in logs.items() if log and log.incomplete]
    unseen = bool(missing or cut or unlogged or not line_count(logs))
    verdict = Verdict.FAIL if found else Verdict.UNKNOWN if unseen else Verdict.OK
    said = [f"{node} {match}" for node, match in found]
    if missing:
        said.append(f"no log of {some(missing)}")
    if unlogged:
        said.append(f"{logs_of(logs, unlogged)}: what the others said is not known")
    if cut:
        said.append(f"not in the part that is there: {some(cut)}")
    if not line_count(logs) and not (missing or cut):
        said.append("the logs are empty")
    remedies = dict.fromkeys(f"{match.cause}: {match.remedy}" for _, match in found)
    return Outcome(
        verdict=verdict,
        wanted=0,
        actual=None if unseen and not found else len(found),
        unit="lines",
        evidence="; ".join(said) or seen,
        remedy="; ".join(remedies)
        or (None if verdict is Verdict.OK else advice("unlogged" if unlogged else "unfinished")),
    )
