"""Lines that must not be in any log: of a failure, and of RCCL where a tuning did not take."""

from shakedown.catalogue import advice, entries
from shakedown.common.text import QUOTED, counted, some
from shakedown.gates.model import Outcome
from shakedown.gates.observed import JobEnd, Logs, NodeLog, line_count, logs_of
from shakedown.gates.registry import gate
from shakedown.logs.nccl_debug import SHOWS_WARNINGS
from shakedown.logs.signatures import Match
from shakedown.state.findings import Verdict


@gate
def no_failure_signature(logs: Logs) -> Outcome:
    """No node's log holds a line that means failure. A log that could not be had is unknown, and so is one line in
    none. A traceback that is no failure (torchrun's on SIGTERM) is named in the evidence."""
    by_node = {name: log for name, log in logs.by_node.items() if log}
    trains = any(log.iterations for log in by_node.values())
    failures = [(name, match) for name, log in by_node.items() if (match := _failure(log, trains))]
    harmless = [f"{name} {traceback}" for name, log in by_node.items() for traceback in log.harmless]
    seen = "; ".join([f"none in {counted(line_count(logs.by_node), 'line')}", *harmless[:QUOTED]])
    return _none_of(logs, failures, seen)


@gate
def ended_well(logs: Logs, end: JobEnd | None = None) -> Outcome:
    """Behind the last iteration no log reports a bad end: of a signal, an exit code, the scheduler, the launcher, the
    GPU's runtime. An unexplained line with an error word is unknown, except where every rank ended with 0. The end of a
    job that was stopped is unknown as well. Of a log without iterations the last lines count.
    """
    if end and end.stopped:  # what ranks print when they are ended accuses none of them
        evidence = "the job was stopped before its end"
        return Outcome(verdict=Verdict.UNKNOWN, evidence=evidence, remedy=advice("unfinished"))
    by_node = {name: log for name, log in logs.by_node.items() if log}
    codes = end.exit_codes if end else None
    failed = [f"{name}: {log.end.failed}" for name, log in by_node.items() if log.end.failed]
    doubtful = [f"{name}: {log.end.doubtful}" for name, log in by_node.items() if log.end.doubtful]
    too_long = "the part behind the last iteration is too long to be read"
    doubtful += [f"{name}: {too_long}" for name, log in by_node.items() if log.end.cut]
    missing = [name for name, log in logs.by_node.items() if log is None]
    unseen = [f"no log of {some(missing)}"] if missing else []
    unseen += [f"{name}: {log.incomplete}" for name, log in by_node.items() if log.incomplete]
    unseen += [f"{logs_of(logs.by_node, logs.unlogged)}: the end of the other logs is unknown"] if logs.unlogged else []
    exited = bool(codes) and all(code == 0 for code in (codes or {}).values())
    unknown = bool(unseen) or (bool(doubtful) and not exited) or not line_count(logs.by_node)
    verdict = Verdict.FAIL if failed else Verdict.UNKNOWN if unknown else Verdict.OK
    evidence = some(failed or [*doubtful, *unseen]) or f"none in the ends of {counted(len(by_node), 'log')}"
    wanted = "no failure behind the last iteration"
    remedy = advice("unlogged" if logs.unlogged and not failed else "unfinished")
    return Outcome(verdict=verdict, wanted=wanted, evidence=evidence, remedy=remedy)


def job_of(log: NodeLog) -> Outcome:
    """Return what one log says of its job: the worse of the two outcomes above."""
    logs = Logs({"the log": log})
    return max(no_failure_signature(logs), ended_well(logs), key=lambda outcome: outcome.verdict.severity)


@gate
def rccl_tuning(logs: Logs) -> Outcome:
    """RCCL says in no node's log that a tuning did not take. Where several nodes were to use RDMA and no log has a
    line of RCCL, its silence is unknown; unless NCCL_DEBUG was WARN, a line has to show the network.

    Where the job was to use RDMA between nodes, a fall back to TCP is a failure. RCCL is silent where NCCL_DEBUG is
    below WARN, and its silence is unknown.
    """
    by_node, level = logs.by_node, logs.nccl_debug
    only_rdma = {signature.name for signature in entries("rccl") if signature.rdma}
    matches = [(name, match) for name, log in by_node.items() if log for match in log.rccl]
    matches = [(name, match) for name, match in matches if logs.rdma or match.name not in only_rdma]
    if not matches and level is not None and level.upper() not in SHOWS_WARNINGS:
        silent = f"RCCL was silent: NCCL_DEBUG was {level or 'not set'}"
        remedy = "run with NCCL_DEBUG=WARN or more"
        return Outcome(verdict=Verdict.UNKNOWN, wanted=0, evidence=silent, remedy=remedy)
    whole = not logs.unlogged and all(log and not log.incomplete for log in by_node.values())
    lines = counted(line_count(by_node), "line")
    speak = any(log.rccl_speaks for log in by_node.values() if log)
    warns_only = (level or "").upper() == "WARN"  # so a person wanted it; the network is named by INFO
    shows = speak if warns_only else any(log.rccl_network for log in by_node.values() if log)
    if whole and not matches and logs.rdma and not shows:
        what = "of RCCL shows its network" if speak else "of RCCL"
        silent = f"no line {what} in {lines}, so nothing shows that RDMA was used"
        remedy = "run with NCCL_DEBUG=INFO; where the nodes used sockets, pass --transport sockets to shakedown judge"
        return Outcome(verdict=Verdict.UNKNOWN, wanted=0, evidence=silent, remedy=remedy)
    setting = f"NCCL_DEBUG={level}" if level else "NCCL_DEBUG of the run is not known"
    return _none_of(logs, matches, f"no such line in {lines}; {setting}")


def _failure(log: NodeLog, trains: bool) -> Match | None:
    """Return the failure of a log that explains the others best; where the run trains and this log has no iterations,
    the first that it did not handle."""
    return log.failure if not trains or log.iterations else next(iter(log.unhandled(trains)), None)


def _none_of(logs: Logs, matches: list[tuple[str, Match]], seen: str) -> Outcome:
    missing = [node for node, log in logs.by_node.items() if log is None]
    cut = [f"{node}: {log.incomplete}" for node, log in logs.by_node.items() if log and log.incomplete]
    empty = not line_count(logs.by_node)
    unseen = bool(missing or cut or logs.unlogged or empty)
    verdict = Verdict.FAIL if matches else Verdict.UNKNOWN if unseen else Verdict.OK
    texts = [f"{node} {match}" for node, match in matches]
    if missing:
        texts.append(f"no log of {some(missing)}")
    if logs.unlogged:
        texts.append(f"{logs_of(logs.by_node, logs.unlogged)}: the other logs are unknown")
    if cut:
        texts.append(f"not in the part that is there: {some(cut)}")
    if empty and not (missing or cut):
        texts.append("the logs are empty")
    remedies = dict.fromkeys(f"{match.cause}: {match.remedy}" for _, match in matches)
    return Outcome(
        verdict=verdict,
        wanted=0,
        actual=None if unseen and not matches else len(matches),
        unit="lines",
        evidence="; ".join(texts) or seen,
        remedy="; ".join(remedies)
        or (None if verdict is Verdict.OK else advice("unlogged" if logs.unlogged else "unfinished")),
    )
