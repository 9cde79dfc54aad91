"""Gates on what was seen of the nodes while a job ran, and after it."""

from collections.abc import Collection, Mapping
from statistics import median
from typing import Any, TypeGuard

from shakedown.catalogue import advice
from shakedown.common.data import read_toml
from shakedown.common.text import counted, decimal, printable, some
from shakedown.evidence.stragglers.model import NOT_SEEN, Stragglers, sentence
from shakedown.evidence.telemetry.kernel import KernelWindow, Reported, reported
from shakedown.evidence.telemetry.summary import STEADY
from shakedown.gates.model import Outcome
from shakedown.gates.observed import Counters, JobEnd, NodeWatch
from shakedown.gates.registry import gate
from shakedown.state.findings import Verdict, worst


@gate
def counters(counters: Counters) -> Outcome:
    """No error counter of any node is higher after the run than before.

    Of counters that healthy ports raise too (counters.toml) a growth counts that is beyond that of the other ports.

    A value that is no count, and a counter or node that is missing on one side, is unknown. So is a counter that is
    lower afterwards: it was reset, and what it had counted is lost.
    """
    before, after = counters.before, counters.after
    growth: dict[str, dict[str, int]] = {}  # counter -> label -> growth
    risen, unseen, reset, compared = {}, [], [], 0
    for node in dict.fromkeys([*before, *after]):
        if node not in before or node not in after:
            unseen.append(f"{node} ({'before' if node not in before else 'after'} the run)")
            continue
        for name in dict.fromkeys([*before[node], *after[node]]):
            was, is_now = before[node].get(name), after[node].get(name)
            label = f"{node}: {name}"
            if not _is_count(was) or not _is_count(is_now):
                unseen.append(f"{label} ({'after' if _is_count(was) else 'before'} the run)")
                continue
            compared += 1
            growth.setdefault(name.rpartition("/")[2], {})[label] = is_now - was
            if is_now > was:
                risen[label] = f"{was} -> {is_now}"
            elif is_now < was:
                reset.append(f"{label} {was} -> {is_now}")
    usual = {label: change for label, change in risen.items() if _is_usual(label, growth)}
    risen = {label: change for label, change in risen.items() if label not in usual}
    verdict = Verdict.FAIL if risen else Verdict.UNKNOWN if unseen or reset or not compared else Verdict.OK
    texts = [f"risen: {some([f'{label} {change}' for label, change in risen.items()])}"] if risen else []
    grown = [f"{label} {change}" for label, change in usual.items()]
    texts += [f"risen as on other ports: {some(grown)}"] if grown else []
    texts += [f"reset during the run: {some(reset)}"] if reset else []
    texts += [f"not read: {some(unseen)}"] if unseen else []
    texts += ["no counter was read"] if not compared and not unseen else []
    wanted, remedy = "none higher than before", advice("counters")
    evidence = "; ".join(texts) or f"{compared} counters, {wanted}"
    return Outcome(verdict=verdict, wanted=wanted, actual=risen, evidence=evidence, remedy=remedy)


def _is_usual(label: str, growth: Mapping[str, Mapping[str, int]]) -> bool:
    """Return whether a counter's growth is one that healthy ports show."""
    known = read_toml("shakedown.gates", "counters.toml")
    name = label.rpartition("/")[2]
    if name not in known["repaired"]:
        return False
    others = [count for other, count in growth[name].items() if other != label]
    most: float = known["factor"] * median(others) if others else 0
    return bool(growth[name][label] <= max(most, known["least"]))


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


@gate
def no_throttling(watch: NodeWatch) -> Outcome | None:
    """No GPU was throttled in the steady iterations for a reason of `gpu.no_throttling`. A GPU that does not report
    the reason, and a node without samples of GPUs, is unknown."""
    if not watch.not_throttled:
        return None
    seen, unseen, gpus = [], [], 0
    for node, samples in watch.telemetry.items():
        if samples is None or not samples.samples or not samples.gpus:
            unseen.append(f"{node}: {'no GPU was sampled' if samples and samples.samples else 'no sample'}")
            continue
        gpus += samples.gpus
        for reason in watch.not_throttled:
            if silent := samples.throttle_unread.get(reason):
                unseen.append(f"{node}: {reason} of {len(silent)} of {samples.gpus} GPUs")
        for gpu, seconds in samples.throttled.items():
            names = [name for name in watch.not_throttled if name in seconds]
            seen += [f"{node} {gpu}: {decimal(seconds[name], 3)} s {name}" for name in names]
        if samples.window != STEADY:
            unseen.append(f"{node}: which samples are of steady iterations")
    texts = [f"throttled: {some(seen)}"] if seen else []
    texts += [f"not known: {some(unseen)}"] if unseen else []
    verdict = Verdict.FAIL if seen else Verdict.UNKNOWN if unseen or not watch.telemetry else Verdict.OK
    wanted, remedy = f"none by {', '.join(watch.not_throttled)}", advice("throttled")
    evidence = "; ".join(texts) or f"{counted(gpus, 'GPU')}, none throttled"
    return Outcome(verdict=verdict, wanted=wanted, actual=len(seen), evidence=evidence, remedy=remedy)


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
            unseen.append(f"{node}: {window.unreadable if window else 'no log came from the node'}")
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
    read = any(window and (window.unreadable or window.incomplete) for window in (watch.kernel or {}).values())
    unread = advice("kernel_log" if read else "kernel_log_lost")
    remedy = (first.line.remedy or advice("kernel_log_line")) if first else unread
    looked = f"{counted(lines, 'line')} of {counted(len(watch.kernel or ()), 'node')} while the job ran"
    wanted, bad, evidence = "no line of a fault", len(reports["fail"]) + len(reports["unknown"]), "; ".join(shown)
    return Outcome(verdict=verdict, wanted=wanted, actual=bad, evidence=evidence or looked, remedy=remedy)


def _verdict(reports: Mapping[str, Collection[object]], unseen: bool) -> Verdict:
    verdicts = [Verdict(verdict) for verdict in ("fail", "unknown") if reports[verdict]]
    verdicts += [Verdict.UNKNOWN] if unseen else []
    if verdicts:
        return worst(verdicts)
    return Verdict.WARN if reports["warn"] else Verdict.OK


def _shown(report: Reported, window: KernelWindow) -> str:
    name = report.line.name or "no entry of the catalogue"
    return f"{name} (line {window.numbers[report.line.number]}): {printable(report.text, _LONGEST)}"


@gate
def no_straggler(stragglers: Stragglers) -> Outcome:
    """No node's ranks need longer for the same work than other nodes', by `smoke.straggler_fail` or more, in every
    window. Nodes that scatter too much to name one, and ranks whose work is not known to be equal, are unknown."""
    failed = stragglers.named("fail")
    texts = [some([sentence(straggler) for straggler in failed])] if failed else []
    texts += [f"not known: {stragglers.unknown}"] if stragglers.unknown else []
    verdict = Verdict.FAIL if failed else Verdict.UNKNOWN if texts else Verdict.OK
    if slower := stragglers.named("warn", "notice"):
        texts.append(f"reported: {some([sentence(straggler) for straggler in slower])}")
    texts.append(f"{counted(stragglers.ranks, 'rank')} over {counted(stragglers.windows, 'window')}; {NOT_SEEN}")
    slow, evidence, remedy = ", ".join(straggler.node for straggler in failed), "; ".join(texts), advice("straggler")
    return Outcome(verdict=verdict, wanted="none", actual=slow or None, evidence=evidence, remedy=remedy)


@gate
def nothing_left(end: JobEnd) -> Outcome | None:
    """On no node anything of the job is left running, and that was seen. A container that could not be removed, or of
    which the engine said nothing, may still hold GPUs and memory; the job may have been running when it was judged."""
    if end.left is None:
        return None
    there = [f"{node}: {process}" for node, processes in end.left.items() for process in processes]
    gone = f"all processes and containers of {counted(len(end.left), 'node')} were seen to be gone"
    remedy = "look on the nodes named for processes and containers of the run, end them, and run again"
    verdict, evidence = Verdict.UNKNOWN if there else Verdict.OK, "; ".join(there) or gone
    return Outcome(verdict=verdict, wanted=0, actual=len(there), evidence=evidence, remedy=remedy)
