"""Every gate over what was observed of a job."""

from typing import Any

from shakedown.catalogue import advice
from shakedown.gates.from_logs import JobSpec, from_logs
from shakedown.gates.model import Gate, Outcome
from shakedown.gates.node_log import NodeLog
from shakedown.gates.observed import LogsByNode, Observed, Reading
from shakedown.gates.registry import Rule, rules
from shakedown.state.findings import Verdict


def judge(job: Observed) -> list[Gate]:
    """Judge a job by every gate that has evidence, in the order in which gates are shown."""
    return [
        Gate(name=name, **{field: getattr(outcome, field) for field in Outcome.model_fields})
        for rule in rules()
        for name, seen in rule.outcomes(job).items()
        for outcome in [_trusted(rule, seen, job.reading) if rule.of_lines else seen]
    ]


def judge_log(
    logs: NodeLog | LogsByNode, expect: dict[str, float], iterations: int | None = None, **spec: Any
) -> list[Gate]:
    """Judge the log of one run by the gates that need nothing else; `spec` holds fields of `JobSpec`."""
    by_node = {"log": logs} if isinstance(logs, NodeLog) else logs
    return judge(from_logs(by_node, JobSpec(expect=expect, iterations=iterations, **spec)))


def _trusted(rule: Rule, outcome: Outcome, reading: Reading) -> Outcome:
    """Return what an outcome over lines is worth. Over a part of a log only a failure that was seen can stand."""
    if reading.unjudged:
        verdict = rule.contradicted if reading.contradicted else Verdict.UNKNOWN
        remedy = advice("log_form" if reading.unread else "unfinished")
        return Outcome(verdict=verdict, evidence=reading.unjudged, remedy=remedy)
    if not reading.cut or (outcome.verdict is Verdict.FAIL and rule.stands and reading.shows_failure):
        return outcome
    evidence = f"{outcome.evidence}; but {reading.cut}"
    remedy = outcome.remedy or advice("incomplete")
    return outcome.model_copy(update={"verdict": Verdict.UNKNOWN, "evidence": evidence, "remedy": remedy})
