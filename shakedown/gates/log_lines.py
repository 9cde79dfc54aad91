"""Lines that must not be in any log: of a failure, and of RCCL where a tuning did not take."""

from __future__ import annotations

from collections.abc import Mapping

from shakedown.catalogue import advice, entries
from shakedown.common.text import counted
from shakedown.gates.model import QUOTED, Outcome, some
from shakedown.gates.node_log import NodeLog, line_count, logs_of
from shakedown.gates.registry import gate
from shakedown.logs.nccl_debug import SHOWS_WARNINGS
from shakedown.logs.signatures import Match
from shakedown.state.findings import Verdict


@gate
def no_failure_signature(logs: Mapping[str, NodeLog | None], unlogged: int = 0) -> Outcome:
    """No node's log holds a line that means failure. A log that could not be had is unknown, and so is one line in
    none. A traceback that is no failure (torchrun's on SIGTERM) is named in the evidence."""
    trains = any(log.iterations for log in logs.values() if log)
    found = [(name, match) for name, log in logs.items() if log and (match := _failure(log, trains))]
    passed_over = [f"{name} {each}" for name, log in logs.items() if log for each in log.harmless]
    seen = "; ".join([f"none in {counted(line_count(logs), 'line')}", *passed_over[:QUOTED]])
    return _none_of(logs, found, seen, unlogged)


@gate
def ended_well(
    logs: Mapping[str, NodeLog | None],
    codes: Mapping[str, int | None] | None = None,
    stopped: str = "",
    unlogged: int = 0,
) -> Outcome:
    """Behind the last iteration no log says that something ended badly: a signal, an exit code, the scheduler, the
    launcher, the GPU's runtime. A line with an error word that nothing explains is unknown, but where every rank is
    known to have ended with 0, and so is the end of a job that was stopped. Of a log without iterations the last lines
    count.
    """
    if stopped:  # what ranks say when they are ended accuses none of them
        return Outcome(
            verdict=Verdict.UNKNOWN, evidence="the job was stopped before its end", remedy=advice("unfinished")
        )
    ends = [(name, log.end) for name, log in logs.items() if log]
    failed = [f"{name}: {end.failed}" for name, end in ends if end.failed]
    exited = bool(codes) and all(code == 0 for code in (codes or {}).values())
    doubtful = [f"{name}: {end.doubtful}" for name, end in ends if end.doubtful]
    doubtful += [f"{name}: more than can be read stands behind its last iteration" for name, end in ends if end.cut]
    unseen = [f"no log of {some(missing)}"] if (missing := [name for name, log in logs.items() if log is None]) else []
    unseen += [f"{name}: {log.incomplete}" for name, log in logs.items() if log and log.incomplete]
    unseen += [f"{logs_of(logs, unlogged)}: how the others end is not known"] if unlogged else []
    unknown = bool(unseen) or (bool(doubtful) and not exited)
    said = failed or [*doubtful, *unseen]
    return Outcome(
        verdict=Verdict.FAIL if failed else Verdict.UNKNOWN if unknown or not line_count(logs) else Verdict.OK,
        wanted="no failure behind the last iteration",
        evidence=some(said) if said else f"none in the ends of {counted(len(ends), 'log')}",
        remedy=advice("unlogged" if unlogged and not failed else "unfinished")
        if failed or unknown or not line_count(logs)
        else None,
    )


@gate
def rccl_tuning(
    logs: Mapping[str, NodeLog | None], rdma: bool = False, nccl_debug: str | None = None, unlogged: int = 0
) -> Outcome:
    """RCCL says in no node's log that a tuning did not take. Where several nodes were to use RDMA and no log has a
    line of RCCL, its silence is unknown.

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
    whole = not unlogged and all(log and not log.incomplete for log in logs.values())
    if whole and not found and rdma and not any(log.rccl_speaks for log in logs.values() if log):
        silent = f"no line of RCCL in {counted(line_count(logs), 'line')}, so nothing shows that RDMA was used"
        remedy = "run with NCCL_DEBUG=INFO, or say that the nodes used sockets (shakedown judge --transport sockets)"
        return Outcome(verdict=Verdict.UNKNOWN, wanted=0, evidence=silent, remedy=remedy)
    level = f"NCCL_DEBUG={nccl_debug}" if nccl_debug else "NCCL_DEBUG of the run is not known"
    return _none_of(logs, found, f"no such line in {counted(line_count(logs), 'line')}; {level}", unlogged)


def _failure(log: NodeLog, trains: bool) -> Match | None:
    """Return the first failure of a log; where the run trains, not one that a log without iterations has handled."""
    if not trains or log.iterations:
        return log.failure
    return next((match for match in log.failures if match.name not in log.optional), None)


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
