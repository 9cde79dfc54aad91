"""The text of a ticket to a vendor about one node: what it is, what was seen, what was tried. Markdown."""

import re
from collections.abc import Iterator, Sequence

from shakedown.common.text import printable
from shakedown.evidence.diagnosis.words import evidence
from shakedown.report.markdown import code, table, words
from shakedown.report.terminal import value_text
from shakedown.runs.records import RunRecord
from shakedown.service.marks import step_line
from shakedown.service.model import Step
from shakedown.state.findings import Verdict
from shakedown.state.node import NodeState, is_unreadable

LINES = 20  # of evidence, of findings and of earlier repairs


def candidates(record: RunRecord) -> list[str]:
    """Return the nodes that a run names: those of its diagnosis, else the suspects of its search, else those that
    failed."""
    found = record.diagnosis
    if found is not None and found.origin:
        return list(found.origin)
    result = record.isolation.result if record.isolation else None
    suspects = [node for suspect in result.suspects for node in suspect.nodes] if result else []
    return list(dict.fromkeys(suspects)) or [node.name for node in record.nodes if node.verdict == Verdict.FAIL]


def text_of(record: RunRecord, node: str, state: NodeState | None, steps: Sequence[Step] = ()) -> str:
    """Return the ticket of a node. `state`: as the node was before the run; `steps`: earlier repairs, by the ledger."""
    return "\n".join(_lines(record, node, state, steps)) + "\n"


def _lines(record: RunRecord, node: str, state: NodeState | None, steps: Sequence[Step]) -> Iterator[str]:
    found, named = record.diagnosis, record.diagnosis is not None and node in record.diagnosis.origin
    wrong = [finding for finding in record.findings if finding.node == node and not finding.verdict.passes]
    cause = found.cause if found and named else wrong[0].name if wrong else "fails in training"
    yield f"# {words(node)}: {words(cause)}"
    yield ""
    mark = "SIMULATED run" if record.simulated else "Run"
    yield f"{mark} {code(record.run_id)}, {words(record.started_at)} to {words(record.finished_at or 'unfinished')}."
    if found and named:
        yield f"The failure began on this node ({found.confidence}: {words(found.why)})."
    yield from _section("The node", list(_machine(state)) if state else ["It was not reached: its parts are unknown."])
    quoted = " ".join(
        [*(sign.text for sign in (found.evidence if found else ())), *(value_text(f.actual) for f in wrong)]
    )
    yield from _section("Its parts", list(_parts(state, quoted)) if state else [])
    if found and named:
        others = [sign for sign in found.evidence if sign.node != node]
        signs = [*(sign for sign in found.evidence if sign.node == node), *others[:2]]
        yield from _section("What was seen", [f"- {code(evidence(sign))}" for sign in signs])
    rows = []
    for finding in wrong[:LINES]:
        seen = words(f"{value_text(finding.actual)}, wanted {value_text(finding.wanted)}")
        rows.append(f"- {code(finding.name)}: {seen}{f' ({words(finding.evidence)})' if finding.evidence else ''}")
    yield from _section("Findings", rows)
    repairs = [f"- {words(step_line(step))}" for step in steps[-LINES:]]
    yield from _section("What was tried", [*_tried(record, node), *repairs])


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield from ("", f"## {title}", "", *lines)


def _machine(state: NodeState) -> Iterator[str]:
    system = state.system
    values = {
        "machine": system.product,
        "serial number of the board": system.board_serial,
        "BIOS": system.bios_version,
        "operating system": f"{system.os_name}, kernel {system.kernel}",
        "CPU": state.cpu.model,
        "ROCm": state.rocm_version,
    }
    yield from (f"- {name}: {_value(value)}" for name, value in values.items())


def _parts(state: NodeState, quoted: str) -> Iterator[str]:
    """Yield a row for each GPU and NIC; bold is what the evidence names by its PCI address or name."""

    def part(kind: str, *names: str) -> str:
        return f"**{kind}**" if any(re.search(rf"\b{re.escape(name)}\b", quoted) for name in names) else kind

    gpus = [] if is_unreadable(state.gpus) else state.gpus
    rdma = [] if is_unreadable(state.rdma) else state.rdma
    rows = [
        (
            part("GPU", gpu.bdf),
            code(gpu.bdf),
            _value(gpu.model),
            _value(gpu.serial),
            _value(gpu.driver),
            _firmware(gpu.firmware),
        )
        for gpu in gpus
    ]
    rows += [
        (
            part("NIC", nic.name, str(nic.bdf)),
            _value(nic.bdf),
            code(nic.name),
            _value(nic.guid),
            _value(nic.driver),
            _value(nic.firmware),
        )
        for nic in rdma
    ]
    if rows:
        yield from list(table(("part", "PCI address", "name", "serial number or GUID", "driver", "firmware"), rows))[1:]


def _firmware(firmware: object) -> str:
    return (
        ", ".join(f"{k} {_value(v)}" for k, v in firmware.items()) if isinstance(firmware, dict) else _value(firmware)
    )


def _tried(record: RunRecord, node: str) -> Iterator[str]:
    for own in (part for part in record.nodes if part.name == node):
        if own.changes:
            yield f"- settings that the run changed: {words(', '.join(own.changes))}"
    trainings = record.isolation.trainings if record.isolation else []
    trained = [training for training in trainings if node in training.group.nodes]
    if trained:
        failed = sum(training.outcome == "fail" for training in trained)
        yield f"- a search for bad nodes trained it {len(trained)} times in groups: {failed} failed"


def _value(value: object) -> str:
    return "unknown" if value is None or is_unreadable(value) else words(printable(str(value), 200))
