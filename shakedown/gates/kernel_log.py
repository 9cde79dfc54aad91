"""Whether the kernel of a node reported a fault while the job ran."""

from collections.abc import Collection, Mapping

from shakedown.catalogue import advice
from shakedown.common.text import counted, printable
from shakedown.evidence.kernel_lines import Reported, reported
from shakedown.evidence.telemetry.kernel import KernelWindow
from shakedown.gates.model import Outcome, some
from shakedown.gates.observed import NodeWatch
from shakedown.gates.registry import gate
from shakedown.state.findings import Verdict, worst

_ORDER = ("fail", "unknown", "warn")
_LONGEST = 300  # characters of a line


@gate
def no_kernel_fault(watch: NodeWatch) -> Outcome | None:
    """No line of a node's kernel log from the job's begin to its end shows a fault: no line that the catalogue knows as
    one, and no unknown line of priority 0 to 2. An unknown line of priority 3 is unknown where the log before the job
    has none like it. A corrected error warns. Of links those of the job count. The same holds for events of devices: a
    GPU that was reset, a device that left, a link without a carrier. Their absence proves nothing.

    A log that could not be read, or not to its end, is unknown where `system.kernel_log_clean` asks for it, and shown
    otherwise."""
    reports: dict[str, list[tuple[str, Reported]]] = {verdict: [] for verdict in _ORDER}
    unseen, lines = [], 0
    for node, window in (watch.kernel or {}).items():
        if window is None or window.unreadable:
            unseen.append(f"{node}: {window.unreadable if window else 'there is none'}")
        elif window.incomplete:
            unseen.append(f"{node}: {window.incomplete}")
    for node, window in [*(watch.kernel or {}).items(), *watch.devices.items()]:
        if window is None:
            continue
        for report in reported(window, watch.links.get(node) or None):
            reports[report.verdict].append((f"{node}: {_shown(report, window)}", report))
        lines += len(window.lines)
    if watch.kernel is None and not any(reports.values()):
        return None
    shown = [some([text for text, _ in reports[verdict]]) for verdict in _ORDER if reports[verdict]]
    shown += [f"not seen: {some(unseen)}"] if unseen else []
    verdict = _verdict(reports, bool(unseen) and watch.kernel_wanted)
    first = next((reports[verdict][0][1] for verdict in _ORDER if reports[verdict]), None)
    remedy = (first.line.remedy or advice("kernel_log_line")) if first else advice("kernel_log")
    return Outcome(
        verdict=verdict,
        wanted="no line of a fault",
        actual=len(reports["fail"]) + len(reports["unknown"]),
        evidence="; ".join(shown)
        or f"{counted(lines, 'line')} of {counted(len(watch.kernel or ()), 'node')} while the job ran",
        remedy=remedy,
    )


def _verdict(reports: Mapping[str, Collection[object]], unseen: bool) -> Verdict:
    verdicts = [Verdict(verdict) for verdict in ("fail", "unknown") if reports[verdict]]
    verdicts += [Verdict.UNKNOWN] if unseen else []
    if verdicts:
        return worst(verdicts)
    return Verdict.WARN if reports["warn"] else Verdict.OK


def _shown(report: Reported, window: KernelWindow) -> str:
    name = report.line.name or "no entry of the catalogue"
    return f"{name} (line {window.numbers[report.line.number]}): {printable(report.text, _LONGEST)}"
