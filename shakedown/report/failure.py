"""The end of a run that did not pass, for one screen: what failed and where, the next step, the gates, the nodes."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from shakedown.common.lists import grouped
from shakedown.common.text import printable
from shakedown.evidence.diagnosis import words
from shakedown.evidence.diagnosis.model import Diagnosis
from shakedown.evidence.diagnosis.origin import STOOD_STILL
from shakedown.gates import Gate
from shakedown.gates.consequences import OF_SOME_NODE, named, split
from shakedown.hosts import few, folded
from shakedown.isolation.tree import result_lines
from shakedown.logs.metrics import METRICS
from shakedown.report.causes import FoldedGate, fold_gates
from shakedown.report.files import FILES
from shakedown.report.summary import PAGE, HostOutcome, OutcomeKind, Summary
from shakedown.runs.directory import RunNode, RunRecord
from shakedown.runs.judging import soak_failed
from shakedown.state.findings import FixedBy, Verdict

_GATES = 3  # gates that are shown with their evidence and remedy; the others by their names
# A remedy may begin with a command.
_PROGRAMS = {"curl", "docker", "findmnt", "getent", "ip", "kubectl", "quota", "sacct", "scontrol"}
_PROGRAMS |= {"shakedown", "show_gids", "showmount", "systemctl", "ucx_info"}
_SEARCH = 4  # lines of a search for bad nodes
# A run has logged in anew, and boots nodes only where it may: another run would change nothing.
_LOGIN = "See UsePAM in the nodes' sshd_config, and pam_limits: a new session did not suffice. Or reboot."
_REBOOT = 'Reboot the nodes, or have a run do it: "system": {"reboot": "when needed"}.'
_NOTES = 3  # notes on nodes
_WORD = 80  # characters of the names of suspects in a command
_LIMITS = 4  # nodes that a command of pyinfra names
_WORDS: dict[Verdict, OutcomeKind] = {Verdict.DRIFT: "drift", Verdict.UNKNOWN: "unknown", Verdict.FAIL: "failed"}


def gate_lines(gates: Sequence[Gate], diagnosis: Diagnosis | None) -> Iterator[list[str]]:
    """Yield the gates that failed on their own account, with remedies, then the names of all others that are not ok."""
    own, following = split(gates, diagnosis)
    rows = _worst_first(own)
    for number, row in enumerate(rows[:_GATES]):
        gate, remedy = row.gate, row.gate.remedy or ""
        where = f" on {few(row.nodes)}" if row.nodes else ""
        shown = [before.gate.remedy for before in rows[:number]]
        first = printable(f"  {gate.verdict}: gate {gate.name}{where}: {gate.evidence}", 400)
        yield [first, *([f"    {printable(sentence(remedy), 400)}"] if remedy and remedy not in shown else [])]
    if rest := _names(rows[_GATES:]):
        yield [f"  further gates: {rest}"]
    if own or following:
        bad = f"{sum(not gate.verdict.passes for gate in gates)} of {len(gates)} did not pass"
        names = _names(fold_gates(following))
        yield [f"  gates: {bad}{f'; these follow from the early end: {names}' if names else ''}"]


def _worst_first(gates: Sequence[Gate]) -> list[FoldedGate]:
    return sorted(fold_gates(gates), key=lambda row: -row.gate.verdict.severity)


def _names(rows: Sequence[FoldedGate]) -> str:
    return printable(", ".join(f"{row.gate.name}{f' on {few(row.nodes)}' if row.nodes else ''}" for row in rows))


def sentence(remedy: str) -> str:
    """Return a remedy as a sentence."""
    text = remedy.strip()
    text = text if text.partition(" ")[0].rstrip(":") in _PROGRAMS else text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) or not text else f"{text}."


def next_steps(record: RunRecord) -> list[str]:
    """Return what to do next: the diagnosis' remedy, and the command that comes after it."""
    found = _diagnosis(record)
    if record.soak is not None:
        again = f"shakedown soak {_word(record.inventory)} --resume {_word(record.run_id)}"
        again += _limit(record.soak.nodes)
        return [] if record.soak.over or soak_failed(record) else [f"  next: {again}"]
    left = [finding for finding in record.findings if finding.verdict is Verdict.DRIFT]
    if found is None and record.verdict is Verdict.DRIFT and left and all(finding.pending for finding in left):
        login = any(finding.fixed_by == FixedBy.LOGIN for finding in left)
        check = f"shakedown drift {_word(record.inventory)}"
        return [f"  next: {_LOGIN if login else _REBOOT}", f"  then: {check}"]
    remedy = [f"  next: {printable(sentence(found.remedy), 400)}"] if found is not None and found.remedy else []
    return [*remedy, f"  {'then' if remedy else 'next'}: {next_command(record)}"]


def next_command(record: RunRecord) -> str:
    """Return the command to run next."""
    found = record.diagnosis
    nodes: Sequence[str] = ()
    if found is not None:
        nodes = found.origin
    elif not any(gate.node is None and not gate.verdict.passes for gate in record.gates):
        nodes = [node.name for node in record.nodes if node.verdict in (Verdict.FAIL, Verdict.UNKNOWN)]
    suspects = _suspects(record)
    if suspects and record.deploy in ("", "megatron"):  # pyinfra's own --limit leaves no node out
        nodes = [f"!{name}" for name in suspects]
    undecided = bool(found.among) if found is not None else _of_some_node(record)
    if undecided and record.isolation is None:
        return f"shakedown isolate {_word(record.inventory if record.simulated else record.run_id)}"
    return _again(record, nodes if len(nodes) < len(record.nodes) else ())


def _of_some_node(record: RunRecord) -> bool:
    """Return whether figures or losses of a job over several nodes failed, as one bad node makes them fail."""
    failed = {gate.name for gate in record.gates if gate.node is None and gate.verdict is Verdict.FAIL}
    several = sum(node.part == "trained" for node in record.nodes) > 1
    return several and record.deploy in ("", "megatron") and bool(failed & {*METRICS, *OF_SOME_NODE})


def _again(record: RunRecord, nodes: Sequence[str]) -> str:
    """Return the command that runs the same job again, on these nodes; none: on all."""
    inventory = _word(record.inventory)
    if record.deploy in ("", "megatron"):
        return f"shakedown run {inventory}{_limit(nodes)}"
    limits = "".join(f" --limit {_word(node)}" for node in nodes)  # pyinfra reads globs, no ranges
    return f"pyinfra {inventory} {_word(f'deploy/{record.deploy}.py')}{limits if len(nodes) <= _LIMITS else ''}"


def _limit(nodes: Sequence[str]) -> str:
    """Return the option that leaves these nodes alone in a command: all of them, however many. Suspects ("!node")
    whose names fill a line are left out as those of the search."""
    if not nodes or not nodes[0].startswith("!"):
        short = few(nodes)
        return f" --limit {shlex.quote(folded(nodes) if short.endswith(' more') else short)}" if nodes else ""
    terms = re.findall(r"""(?:"[^"]*"|\[[^]]*\]|[^,])+""", folded(name[1:] for name in nodes))
    out = ",".join(f"!{term}" for term in terms)
    return f" --limit {shlex.quote(out)}" if len(out) <= _WORD else " --data smoke.exclude=suspects"


def _word(text: str) -> str:
    """Return a text of a record as one word of a shell: others may have written the record."""
    return shlex.quote(printable(text))


def _suspects(record: RunRecord) -> list[str]:
    result = record.isolation.result if record.isolation else None
    return [name for suspect in result.suspects if suspect.kind == "node" for name in suspect.nodes] if result else []


def _diagnosis(record: RunRecord) -> Diagnosis | None:
    """Return the diagnosis; where a search alone names nodes, what of the diagnosis is of these nodes."""
    found, suspects = record.diagnosis, _suspects(record)
    if found is None or found.origin or found.common or not suspects:
        return found
    own = words.causes(found, suspects)
    if own:
        cause, first = words.of_each(own), next(iter(own.values()))
        return found.model_copy(update={"cause": cause, "remedy": first.remedy, "evidence": tuple(own.values())})
    other = any(sign.node and sign.role != "echo" and sign.name not in STOOD_STILL for sign in found.evidence[:1])
    return None if other else found


def _named_by_search(record: RunRecord) -> str:
    """Return the sentence on what the search names, where the diagnosis names no node; empty: it does, or no search."""
    found, names = _diagnosis(record), few(_suspects(record))
    if not names or (record.diagnosis is not None and record.diagnosis.origin):
        return ""
    gates = [gate.name for gate in record.gates if gate.node is None and gate.verdict is Verdict.FAIL]
    failed = f"gate{'s' * (len(gates) > 1)} {', '.join(dict.fromkeys(gates))} failed with" if gates else ""
    cause = found.cause if found else failed and f"{failed} {'it' if len(_suspects(record)) == 1 else 'them'}"
    return f"{names} (named by the search for bad nodes){f': {cause}' if cause else ''}"


def of_run(record: RunRecord, directory: Path | None) -> Summary:
    """Return the summary of a run out of its record alone."""
    alike = grouped((note, node.name) for node in record.nodes for note in node.notes)
    summary = Summary(
        verdict=record.verdict,
        outcomes=[_outcome(node) for node in record.nodes],
        changed={node.name: node.changes for node in record.nodes},
        error=record.ended_by,
        notices=[f"{few(nodes)}: {note}" for note, nodes in alike.items()][:_NOTES],
        interrupted=any(job.ended_by == "interrupted" for job in record.jobs),
    )
    apart = record.simulated and directory is not None  # in no folder in which a run is looked for by its id
    name = str(directory) if apart else printable(record.run_id, 100)
    return with_job(summary, record, directory, f" {shlex.quote(name)}")


def with_job(summary: Summary, record: RunRecord, directory: Path | None, run: str = "") -> Summary:
    """Return the summary with what is shown of a job that did not pass. `run`: its name in a command."""
    found, shown = record.diagnosis, _diagnosis(record)
    result = record.isolation.result if record.isolation else None
    searched = [f"  search: {line}" for line in result_lines(result)][:_SEARCH] if result else []
    outcomes = [replace(outcome, why=own_reason(outcome.why, found)) for outcome in summary.outcomes]
    decided = "" if record.ended_by else of_gates(record.gates, record.verdict)
    return replace(
        summary,
        headline=_named_by_search(record) or (words.headline(found) if found else decided),
        grounds=[*searched, *(f"  {words.evidence(sign)}" for sign in (shown.evidence[:1] if shown else ()))],
        outcomes=[outcome for outcome in outcomes if not _repeats(outcome, found)],
        next_steps=next_steps(record) if record.jobs and record.trials is None else (),
        gates=list(gate_lines(record.gates, found)),
        report=_where(directory, run) if directory else "",
    )


def of_gates(gates: Sequence[Gate], verdict: Verdict) -> str:
    """Return which gates decided the verdict of a job that ran to its end; empty: the gates did not decide it."""
    rows = _worst_first(split(gates, None)[0])
    rows = [row for row in rows if row.gate.verdict is rows[0].gate.verdict]
    if not rows or verdict is not rows[0].gate.verdict:
        return ""
    more = f" and {len(rows) - _GATES} more" if len(rows) > _GATES else ""
    slow = few(node for row in rows for node in named(row.gate))
    nodes = f" with {printable(slow)}" if slow else "" if any(row.nodes for row in rows) else "; no node is named"
    return f"{_names(rows[:_GATES])}{more} {'failed' if verdict is Verdict.FAIL else 'could not be judged'}{nodes}"


def _outcome(node: RunNode) -> HostOutcome:
    kind: OutcomeKind = "ok" if node.verdict.passes else _WORDS[node.verdict]
    if node.part in ("excluded", "unreached"):
        kind = "excluded" if node.part == "excluded" else "unreached"
    return HostOutcome(node.name, "stopped" if node.stopped else kind, node.why)


def _repeats(outcome: HostOutcome, found: Diagnosis | None) -> bool:
    """Return whether the verdict's line, which names where the failure began, says as much of a node."""
    named = found is not None and outcome.node in found.origin
    return named and not outcome.why and outcome.kind in ("failed", "fail")


def own_reason(why: str, found: Diagnosis | None) -> str:
    """Return the reason of a node; none where it repeats the gates or the diagnosis."""
    repeats = "smoke run: did not hold: " in why or (found is not None and why == f"failed: {found.cause}")
    return "" if repeats else why


def _where(directory: Path, run: str) -> str:
    """Return the last line: the file of the report, the command that shows the evidence, and the page on what to do."""
    files = [directory / FILES[form] for form in ("html", "markdown") if (directory / FILES[form]).is_file()]
    file = f"{files[0] if files else directory}, evidence: " if files or str(directory) not in run else ""
    return f"report: {file}shakedown report{run} -v, help: {PAGE}"
