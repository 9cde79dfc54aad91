"""Whether the kernel of a node reported a fault while the job ran."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from shakedown.catalogue import advice
from shakedown.common.text import counted, printable
from shakedown.evidence.kernel_lines import Reported, reported
from shakedown.evidence.telemetry.kernel import KernelWindow
from shakedown.gates.model import Outcome, some
from shakedown.gates.registry import gate
from shakedown.state.findings import Verdict, worst

_ORDER = ("fail", "unknown", "warn")
_LONGEST = 300  # characters of a line


@gate
def no_kernel_fault(
    kernel: Mapping[str, KernelWindow | None],
    kernel_wanted: bool = False,
    links: Mapping[str, Collection[str]] | None = None,
) -> Outcome:
    """No line of a node's kernel log from the job's begin to its end shows a fault: no line that the catalogue knows as
    one, and no unknown line of priority 0 to 2. An unknown line of priority 3 is unknown where the log before the job
    has none like it. A corrected error warns. Of links those of the job count.

    A log that could not be read, or not to its end, is unknown where `system.kernel_log_clean` asks for it, and shown
    otherwise."""
    found: dict[str, list[tuple[str, Reported]]] = {verdict: [] for verdict in _ORDER}
    unseen, lines = [], 0
    for node, window in kernel.items():
        if window is None or window.unreadable:
            unseen.append(f"{node}: {window.unreadable if window else 'there is none'}")
            continue
        if window.incomplete:
            unseen.append(f"{node}: {window.incomplete}")
        lines += len(window.lines)
        for each in reported(window, (links or {}).get(node) or None):
            found[each.verdict].append((f"{node}: {_shown(each, window)}", each))
    shown = [some([text for text, _ in found[verdict]]) for verdict in _ORDER if found[verdict]]
    shown += [f"not seen: {some(unseen)}"] if unseen else []
    verdict = _verdict(found, bool(unseen) and kernel_wanted)
    first = next((found[verdict][0][1] for verdict in _ORDER if found[verdict]), None)
    remedy = (first.line.remedy or advice("kernel_log_line")) if first else advice("kernel_log")
    return Outcome(
        verdict=verdict,
        wanted="no line of a fault",
        actual=len(found["fail"]) + len(found["unknown"]),
        evidence="; ".join(shown) or f"{counted(lines, 'line')} of {counted(len(kernel), 'node')} while the job ran",
        remedy=None if verdict is Verdict.OK else remedy,
    )


def _verdict(found: Mapping[str, Collection[object]], unseen: bool) -> Verdict:
    verdicts = [Verdict(verdict) for verdict in ("fail", "unknown") if found[verdict]]
    verdicts += [Verdict.UNKNOWN] if unseen else []
    if verdicts:
        return worst(verdicts)
    return Verdict.WARN if found["warn"] else Verdict.OK


def _shown(each: Reported, window: KernelWindow) -> str:
    name = each.line.name or "no entry of the catalogue"
    return f"{name} (line {window.numbers[each.line.number]}): {printable(each.text, _LONGEST)}"
