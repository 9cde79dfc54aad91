"""The judgement of a run, at its end and again whenever a user asks, from what its directory holds."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from shakedown import gates
from shakedown.gates import Gate, NodeLog, Observed
from shakedown.gates.baselines.model import Past
from shakedown.gates.judge import PARSERS
from shakedown.gates.judgement import Judgement, judge, judge_measured, never_started
from shakedown.gates.observed import Counters, Expected, JobEnd, LogCopies
from shakedown.logs.figures import measure
from shakedown.logs.kept_logs import LEADER
from shakedown.runs import copies
from shakedown.runs.directory import Evidence, JobRecord, RunDirectory, RunRecord
from shakedown.state.findings import Verdict, worst
from shakedown.trials.gates import gates as trial_gates
from shakedown.trials.judge import judge_record
from shakedown.trials.models import FRESH, KINDS, NODES, REPORT, Reading, TrialsRecord, read_log
from shakedown.trials.soak import KIND, RECIPE, SMOKE, SoakRecord
from shakedown.trials.soak_judge import Part, broken, judge_parts, soak_gates
from shakedown.trials.workload.soak import MARK as SOAK


def judge_run(
    directory: RunDirectory,
    record: RunRecord,
    evidence: Mapping[str, Evidence],
    judgements: Sequence[Judgement] | None = None,
) -> list[Gate]:
    """Judge a run directory again. `judgements`: of its jobs, if known. Raises ValueError for a run without plan."""
    of_jobs = judge_jobs(directory, record, evidence) if judgements is None else judgements
    judged = [gate for judgement in of_jobs for gate in judgement.gates]
    judged += trial_gates(trials, record.inventory) if (trials := judge_trials(directory, record, evidence)) else []
    soak = judge_soak(directory, record, evidence)
    return [*judged, *(soak_gates(soak, throttled(of_jobs), any_failed(record, judged)) if soak else [])]


def judge_jobs(directory: RunDirectory, record: RunRecord, evidence: Mapping[str, Evidence]) -> list[Judgement]:
    """Apply the gates of each job, with what they rest on; the same errors as `judge_run`."""
    if record.kind == "drift":
        raise ValueError(f"{directory.path}: a drift check has no job to be judged: shakedown report shows it")
    if not record.jobs and record.isolation is not None:
        raise ValueError(f"{directory.path}: a search for bad nodes is judged as it goes: shakedown report shows it")
    if not record.jobs:
        raise ValueError(f"{directory.path}: it has no plan yet, or ended before it had one: shakedown report shows it")
    return [judge_job(directory, job, evidence.get(job.name, Evidence())) for job in record.jobs]


def judge_trials(directory: RunDirectory, record: RunRecord, evidence: Mapping[str, Evidence]) -> TrialsRecord | None:
    """Judge the trials of a run, read again from its logs; None where it has none."""
    if record.trials is None:
        return None
    readings: list[Reading] = []
    incomplete: dict[str, dict[str, str]] = defaultdict(dict)
    for job in record.jobs:
        kept = evidence.get(job.name, Evidence())
        if job.trials not in KINDS or job.plan is None:
            continue
        for node in job.plan.nodes:
            logs = {log.name: log for log in kept.logs.get(node.name, [])}
            text, why = copies.report_of(directory.path, logs.get(LEADER), REPORT)
            found = read_log(node.name, (text or "").splitlines())
            fresh = job.trials in FRESH and record.trials.confirm
            readings += [reading.model_copy(update={"fresh": fresh}) for reading in found.readings]
            why = why or found.wrong or ("" if found.over else kept.stopped or "its program did not finish")
            if why:
                incomplete[job.trials][node.name] = why
    whole = record.trials.model_copy(update={"readings": readings, "incomplete": dict(incomplete)})
    return judge_record(whole, past_by_node(record, evidence))


def judge_soak(directory: RunDirectory, record: RunRecord, evidence: Mapping[str, Evidence]) -> SoakRecord | None:
    """Judge the soak of a run, read again from its logs; None where it has none."""
    if record.soak is None:
        return None
    parts = []
    for job in record.jobs:
        stage, _, _ = job.trials.removeprefix(f"{KIND}/").rpartition("-")
        if not job.trials.startswith(f"{KIND}/") or job.plan is None:
            continue
        kept, timing = evidence.get(job.name, Evidence()), evidence.get(job.name, Evidence()).timing
        texts = {}
        for node in job.plan.nodes:
            logs = {log.name: log for log in kept.logs.get(node.name, [])}
            texts[node.name] = copies.report_of(directory.path, logs.get(LEADER), (*REPORT, SOAK))[0] or ""
        took = (timing.finished_at or 0.0) - (timing.started_at or 0.0) if kept.stopped is None else 0.0
        parts.append(Part(stage, job.plan.recipe == RECIPE, max(took, 0.0), texts))
    return judge_parts(record.soak, parts)


def soak_failed(record: RunRecord) -> bool:
    """Return whether a soak found what rules out going on with it."""
    return any_failed(record, record.gates) or bool(record.soak and broken(record.soak))


def any_failed(record: RunRecord, judged: Sequence[Gate]) -> bool:
    """Return whether a gate failed. A job that never began has found nothing: another run held a node."""
    empty = {job.name for job in record.jobs if not job.logs}
    return any(gate.verdict == Verdict.FAIL and gate.job not in empty for gate in judged)


def throttled(judgements: Sequence[Judgement]) -> dict[str, dict[str, float]]:
    """Add up for how long the GPUs of each node were throttled in all jobs: node -> reason -> seconds of the worst."""
    seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for judgement in judgements:
        for node, telemetry in judgement.telemetry.items():
            for reason in {name for of_gpu in telemetry.throttled.values() for name in of_gpu}:
                seconds[node][reason] += max(of_gpu.get(reason, 0.0) for of_gpu in telemetry.throttled.values())
    return {node: dict(reasons) for node, reasons in seconds.items()}


def past_by_node(record: RunRecord, evidence: Mapping[str, Evidence]) -> dict[str, Past]:
    """Return what the ledger knew of each node's trials by itself when the run ended."""
    kept = {job.node: evidence[job.name] for job in record.jobs if job.trials == NODES and job.name in evidence}
    return {node: job.past for node, job in kept.items() if node and job.past}


def verdict_of(record: RunRecord, judged: Sequence[Gate]) -> Verdict:
    """Return what a run comes to. A node that took no part, and an unfinished run, leave it unknown at best."""
    verdicts = [finding.verdict for finding in record.findings] + [gate.verdict for gate in judged]
    verdicts += [Verdict.UNKNOWN for node in record.nodes if node.part in ("excluded", "unreached")]
    if record.finished_at is None or not judged:
        verdicts.append(Verdict.UNKNOWN)
    return worst(verdicts)


def judged_again(directory: RunDirectory, record: RunRecord) -> tuple[Verdict, list[Gate] | None]:
    """Return a run's verdict by its evidence alone, and its gates now; None: the record and findings decide."""
    try:
        judged = judge_run(directory, record, directory.load_evidence())
    except (OSError, ValueError):  # a check, a run that ended before any plan was made, or one without its evidence
        findings = [finding.verdict for finding in record.findings]
        absent = [Verdict.UNKNOWN for node in record.nodes if node.part in ("excluded", "unreached")]
        return worst([record.verdict, *findings, *absent, *([Verdict.UNKNOWN] if record.jobs else [])]), None
    return verdict_of(record, judged), judged


def judge_job(directory: RunDirectory, job: JobRecord, evidence: Evidence) -> Judgement:
    """Apply the gates to one job: at its end, and again whenever somebody asks."""
    if job.plan is None:
        judgement = never_started(job.error or "its plan was never made")
    elif job.trials.startswith(f"{KIND}/") and job.ended_by == "interrupted":
        return Judgement([], [], measure([]), [])  # what is missing of its time, the soak's own gate says
    else:
        logs = {node.name: log_of(directory, node.name, job, evidence) for node in job.plan.nodes}
        codes, stopped = evidence.exit_codes, evidence.stopped
        end = JobEnd(codes, stopped=stopped, started=evidence.started, stopped_nodes=evidence.stopped_nodes)
        watched = copies.watched(directory.path, evidence.logs, evidence.timing)
        if job.trials and not job.trials.startswith(f"{KIND}/{SMOKE}-"):
            judgement = judge_measured(job.plan, logs, end, watched)
        else:
            whole = LogCopies(logs, copies.changed(directory.path, evidence.logs))
            counters = Counters(evidence.counters_before, evidence.counters_after)
            expected = Expected(past=evidence.past, alone=evidence.alone)
            judgement = judge(job.plan, whole, end, counters, expected, watched)
    of_this = {"job": job.name, "node": job.node}
    judged = list(judgement.gates)
    if any(evidence.left.values()) or (evidence.left and len(judged) > 1):  # one gate: nothing ran
        judged += gates.judge(Observed(end=JobEnd(left=evidence.left)))
    return replace(judgement, gates=[gate.model_copy(update=of_this) for gate in judged])


def log_of(directory: RunDirectory, node: str, job: JobRecord, evidence: Evidence) -> NodeLog | None:
    """Return what the job's parser reads of a node. None: it has no log; one that is not what was fetched says so."""
    named, kept = job.logs.get(node, []), evidence.logs.get(node, [])
    if not named and not kept:
        return None
    if [log.path for log in kept] != named:
        return NodeLog(incomplete="run.json and evidence.json do not name the same logs of it")
    copy_of = {log.name: log for log in kept}
    read = PARSERS[job.plan.parser if job.plan else "training"].read
    return read(
        copies.read_kept(directory.path, kept[0]), lambda name: copies.text_of(directory.path, copy_of.get(name))
    )
