"""The diagnosis of a run, out of its record, its evidence and its logs: at its end, and whenever it is judged again."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import PurePath

from shakedown.catalogue import entry
from shakedown.common.text import printable
from shakedown.evidence.diagnosis.common import of_jobs
from shakedown.evidence.diagnosis.model import Diagnosis, Sign
from shakedown.evidence.diagnosis.origin import STOOD_STILL, decide
from shakedown.evidence.diagnosis.signs import (
    known_names,
    names_in,
    not_running,
    not_used,
    of_failure,
    of_hang,
    of_match,
)
from shakedown.evidence.hangs import records
from shakedown.evidence.hangs.analysis import Rank, analyse
from shakedown.evidence.hangs.records import LIMIT, ranks_of, ras_of
from shakedown.evidence.results import Timing
from shakedown.evidence.telemetry import DEVICE_LOG, KERNEL_LOG
from shakedown.evidence.telemetry.kernel import READ_LIMIT, kernel_log, read, timed
from shakedown.gates import Gate, NodeLog
from shakedown.gates import verdict as verdict_of
from shakedown.logs.kept_logs import KeptLog
from shakedown.logs.signatures import MISMATCH, Match
from shakedown.node.launcher.standstill import FOLDER as HANG
from shakedown.runs import copies
from shakedown.runs.directory import Evidence, JobRecord, RunDirectory, RunRecord
from shakedown.runs.judging import log_of
from shakedown.state.findings import Verdict

_PROBLEMS = 8  # of files that are reported
_UNSEEN = "a node without a log"
_HANG_LIMIT = 8 * LIMIT  # bytes that one node's ranks have left: all of them are held at once


def diagnose(
    record: RunRecord, evidence: Mapping[str, Evidence], directory: RunDirectory, gates: Sequence[Gate] | None = None
) -> Diagnosis | None:
    """Diagnose a run: its job over all nodes, where that failed; otherwise the first job that failed. None: all gates
    hold, or there is no evidence. `gates`: as they are judged now; otherwise the record's."""
    judged = record.gates if gates is None else gates
    alone: list[Diagnosis] = []
    for job in sorted(record.jobs, key=lambda job: job.node is not None):
        if verdict_of([gate for gate in judged if gate.job == job.name]) == Verdict.OK:
            continue
        nodes = [node.name for node in job.plan.nodes] if job.plan else list(job.logs)
        kept = evidence.get(job.name, Evidence())
        followed = kept.failures or kept.exit_codes  # where nobody followed the job, its logs alone show who ended how
        silent = set() if followed else _silent({node: log_of(directory, node, job, kept) for node in nodes})
        found = decide(signs_of(job, kept, directory), job.name, nodes, silent)
        if found is not None and job.node is None:
            return found
        alone += [found] if found is not None else []
    return of_jobs(alone, {job.node for job in record.jobs if job.node}) or next(iter(alone), None)


def signs_of(job: JobRecord, evidence: Evidence, directory: RunDirectory) -> Iterator[Sign]:
    """Yield all signs of a job's failure; without times where the controller did not follow it."""
    nodes = job.plan.nodes if job.plan else []
    addresses = names_in(nodes)
    files = {node: names[0] for node, names in job.logs.items() if names}
    links = {node.name: node.links or None for node in nodes}
    for failure in evidence.failures:
        yield of_failure(failure, files.get(failure.node or ""), addresses)
    kinds = {failure.kind for failure in evidence.failures}
    if kinds & set(STOOD_STILL):
        yield from not_running(evidence.running)
    if kinds & {*STOOD_STILL, MISMATCH}:
        yield from _of_records(job, evidence, directory, addresses)
    if not evidence.failures:
        for node, match in _shown({node: log_of(directory, node, job, evidence) for node in files}):
            yield of_match(match, node, files[node], addresses)
    for node, kept in _files(evidence):
        if kept.name in (KERNEL_LOG, DEVICE_LOG):
            yield from _of_kernel(node, kept, directory, evidence.timing, links.get(node))


def _files(evidence: Evidence) -> Iterator[tuple[str, KeptLog]]:
    return ((node, kept) for node, every in evidence.logs.items() for kept in every)


def _of_records(
    job: JobRecord, evidence: Evidence, directory: RunDirectory, addresses: Mapping[str, str]
) -> Iterator[Sign]:
    """Yield the signs of the ranks' own records, and of records that cannot be used."""
    problems: list[str] = []
    given = job.plan.ranks if job.plan else None
    ranks = ranks_left(evidence, directory, problems, given)
    differ = [failure.node for failure in evidence.failures if failure.kind == MISMATCH and failure.node]
    hang = analyse(ranks, addresses, job.plan.world_size if job.plan else 0, given or {}, differ)
    answers = {}  # of RAS on each node, at the hang
    for node, kept in _files(evidence):
        if kept.name == f"{HANG}/node.json":
            try:
                answers[node] = ras_of(copies.whole(directory.path, kept, LIMIT))
            except ValueError as error:
                problems.append(f"{node}: {printable(str(error), 200)}")
    silent = records.of_answers(answers, addresses, given)
    yield from of_hang(records.together(hang, silent))
    yield from (not_used(problem) for problem in problems[:_PROBLEMS])


def _of_kernel(
    node: str, kept: KeptLog, directory: RunDirectory, timing: Timing, links: Collection[str] | None
) -> Iterator[Sign]:
    """Yield the faults of a node's kernel log or devices, with their times where its clock's offset is known. What
    came after the controller began to stop the job is no cause of the stop."""
    clock = timing.clocks.get(node)
    try:
        name, window = kept.path, read([copies.whole(directory.path, kept, READ_LIMIT)])
    except ValueError as error:
        yield not_used(f"{node}: {error}")
        return
    for match in kernel_log(window.lines, links):
        numbered = match.model_copy(update={"line_number": window.numbers[match.line_number - 1]})
        sign, record = of_match(numbered, node, name), timed(match.line)
        if clock is not None and record is not None:
            if timing.stopped_at is not None and clock.at(record[0]) - clock.uncertainty_s > timing.stopped_at:
                continue
            with suppress(ValueError, OverflowError, OSError):  # a kernel's log may name any time: then it has none
                by = timedelta(seconds=clock.uncertainty_s)
                moment = datetime.fromtimestamp(clock.at(record[0]), UTC)
                sign = Sign.model_validate({**sign.model_dump(), "since": moment - by, "at": moment + by})
        yield sign


def ranks_left(
    evidence: Evidence, directory: RunDirectory, problems: list[str], given: Mapping[str, range] | None = None
) -> list[Rank]:
    """Read each rank's traces of a hang; an unusable file goes to `problems`. `given`: each node's ranks, if known."""
    found = []
    for node, every in evidence.logs.items():
        files, left = dict[str, bytes](), _HANG_LIMIT
        for kept in sorted(every, key=lambda kept: kept.kept):
            if kept.name.startswith(f"{HANG}/") and kept.kept <= left:
                left -= kept.kept
                try:
                    files[kept.name.partition("/")[2]] = copies.whole(directory.path, kept, LIMIT)
                except ValueError as error:
                    problems.append(f"{node}: {error}")
        found += ranks_of(node, files, problems, None if given is None else given.get(node, range(0)))
    return found


def of_logs(logs: Mapping[str, NodeLog], nodes: int | None = None) -> Diagnosis | None:
    """Diagnose logs from anywhere, without an order in time. `nodes`: of the job, which may have more than logs."""
    # By the log's or folder's name, or by RCCL's lines in one log alone. Hosts that share a log stand for themselves.
    names = known_names(
        (host, host if host in log.hosts else name)
        for name, log in logs.items()
        for host in {*log.shape.hosts, *log.hosts, name, PurePath(name).stem, *PurePath(name).parts}
    )
    signs = [of_match(match, _host(match, logs[name]) or name, name, names) for name, match in _shown(logs)]
    missing = [f"{_UNSEEN} {number}" for number in range(len(logs) + 1, (nodes or 0) + 1)]
    unexplained = {*_silent(logs), *([_UNSEEN] if missing else [])}
    nodes_of = [node for name, log in logs.items() for node in sorted(log.hosts) or [name]]
    return decide(signs, nodes=[*nodes_of, *missing], unexplained=unexplained)


def _host(match: Match, log: NodeLog) -> str:
    """Return the host whose line it is in a log with the lines of several; empty: it is not known."""
    return next((host for host in log.hosts if match.line.startswith(f"{host}: ")), "")


def _shown(logs: Mapping[str, NodeLog | None]) -> Iterator[tuple[str, Match]]:
    """Yield the failures of each log. Where the run trains, a fault that a log has handled accuses no node."""
    trains = any(log.iterations for log in logs.values() if log)
    for name, log in logs.items():
        unhandled = log.unhandled(trains) if log else ()
        for match in log.failures if log else ():
            known = entry(match.name)
            if match in unhandled or (known is not None and known.role == "echo"):
                yield name, match


def _silent(logs: Mapping[str, NodeLog | None]) -> set[str]:
    """Return the logs without success or explanation: no reason, and the job's last iteration missing or doubtful."""
    last = max((line.iteration for log in logs.values() if log for line in log.iterations[-1:]), default=0)
    silent, shown = set(), list(_shown(logs))
    for name, log in logs.items():
        own = log.iterations[-1] if log and log.iterations else None
        whole = own is not None and own.iteration == last and last >= own.total_iterations
        if log is None or not (
            any(_explains(match) for node, match in shown if node == name)
            or (whole and not (log.end.failed or log.end.doubtful))
        ):
            silent.add(name)
    return silent


def _explains(match: Match) -> bool:
    """Return whether a line says more than that something ended."""
    known = entry(match.name)
    return known is not None and (known.role == "origin" or not known.symptom)
