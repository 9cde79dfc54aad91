"""Whether the kernel of a node said something of a fault while the job ran."""

from __future__ import annotations

from collections.abc import Mapping

from shakedown.catalogue import advice
from shakedown.findings import Verdict
from shakedown.smoke import signatures
from shakedown.smoke.gates.model import Outcome, some
from shakedown.smoke.gates.registry import gate
from shakedown.telemetry.kernel import KernelWindow
from shakedown.text import counted


@gate
def no_kernel_fault(kernel: Mapping[str, KernelWindow | None], kernel_wanted: bool = False) -> Outcome:
    """No line of a node's kernel log from the job's begin to its end shows a fault (the kernel's signatures). One that
    could not be read, or not to its end, is unknown where `system.kernel_log_clean` asks for it, and told otherwise."""
    found, unseen, lines, first = [], [], 0, None
    for node, window in kernel.items():
        if window is None or window.unreadable:
            unseen.append(f"{node}: {window.unreadable if window else 'there is none'}")
            continue
        if window.incomplete:
            unseen.append(f"{node}: {window.incomplete}")
        lines += len(window.lines)
        for match in signatures.kernel_log(window.lines):
            first = first or match
            found.append(f"{node}: {match.name} (line {window.numbers[match.line_number - 1]}): {match.line}")
    said = [some(found)] if found else []
    said += [f"not seen: {some(unseen)}"] if unseen else []
    verdict = Verdict.FAIL if found else Verdict.UNKNOWN if unseen and kernel_wanted else Verdict.OK
    return Outcome(
        verdict=verdict,
        wanted="no line of a fault",
        actual=len(found),
        evidence="; ".join(said) or f"{counted(lines, 'line')} of {counted(len(kernel), 'node')} while the job ran",
        remedy=first.remedy if first else advice("kernel_log") if verdict is not Verdict.OK else None,
    )
