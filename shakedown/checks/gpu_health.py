"""The health of the GPUs as AMD's library reports it: retired memory, power cap, error records, throttling, links."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from shakedown.checks import GPUS, check, check_wanted
from shakedown.checks.compare import AS_ROOT, common, comparison, data, missing, nothing_there, read_again
from shakedown.desired.models import DesiredState
from shakedown.node.rocm import numbers
from shakedown.state.findings import Comparison, Remedy, Verdict
from shakedown.state.node import NOT_READ, Gpu, NodeState, Reading, is_unreadable

if TYPE_CHECKING:  # a node may have Python 3.8
    from shakedown.state.node import BadPages, ErrorRecord, PowerCap

T = TypeVar("T")
# Linux, amdgpu_ras_eeprom.c: the driver warns from here on, and reports a GPU for exchange at its limit.
NEAR = 0.9
_ORDER = (Verdict.OK, Verdict.WARN, Verdict.UNKNOWN, Verdict.FAIL)
_NEWER = Remedy(text="install the amdsmi of ROCm 7.14 or newer where the GPU's own driver offers it")


class Judgement(NamedTuple):
    """The judgement of one GPU: what to show, and what to do about it."""

    verdict: Verdict
    shown: Any
    remedy: Remedy | None = None


def _judge(
    desired: DesiredState,
    state: NodeState,
    wanted: str,
    read: Callable[[Gpu], Reading[T]],
    judge: Callable[[Gpu, T], Judgement],
    explicit: bool = False,
) -> Comparison | None:
    """Compare a reading of every GPU. None where no GPU was asked: gpu_count and gpu_tool have the reason, or the state
    is of an earlier probe; unknown where the site is `explicit` about it. A reading that the library does not offer is
    advice, since the node may train."""
    gpus = [] if is_unreadable(state.gpus) or is_unreadable(state.gpu_tool) or not desired.gpu.count else state.gpus
    readings = {gpu.bdf: read(gpu) for gpu in gpus}
    if list(readings.values()).count(NOT_READ) == len(readings):
        why = "the GPU library was not asked: see gpu_tool and gpu_count"
        return nothing_there(wanted, count=desired.gpu.count, why=why) if explicit else None
    unread = {bdf: reading for bdf, reading in readings.items() if is_unreadable(reading)}
    judged = {gpu.bdf: judge(gpu, value) for gpu in gpus if not is_unreadable(value := readings[gpu.bdf])}
    evidence = "; ".join(f"{bdf}: {reading}" for bdf, reading in unread.items())
    if len(unread) == len(readings) and all(missing(reading) for reading in unread.values()):
        return Comparison(Verdict.WARN, wanted=wanted, actual="not reported", evidence=evidence, remedy=_NEWER)
    worst = max((judgement.verdict for judgement in judged.values()), key=_ORDER.index, default=Verdict.OK)
    if unread and worst in (Verdict.OK, Verdict.WARN):
        return comparison(Verdict.UNKNOWN, wanted, None, evidence, read_again(next(iter(unread.values()))))
    wrong = {bdf: judgement for bdf, judgement in judged.items() if judgement.verdict is not Verdict.OK}
    remedies = [judgement.remedy for judgement in wrong.values() if judgement.verdict is worst]
    shown = {bdf: judgement.shown for bdf, judgement in (wrong or judged).items()}
    return comparison(worst, wanted, shown if wrong else common(shown), evidence, remedies[0] if remedies else None)


@check("gpu_bad_pages", "gpu.count", follows=(*GPUS, "gpu_tool"), waivable=False)
def gpu_bad_pages(desired: DesiredState, state: NodeState) -> Comparison | None:
    """Count memory pages out of use. AMD exchanges a GPU at its limit. Near the limit, and for pages that wait for the
    driver to be loaded anew, there is advice."""
    return _judge(desired, state, "below AMD's limit", lambda gpu: gpu.bad_pages, _judge_pages)


def _judge_pages(_: Gpu, pages: BadPages) -> Judgement:
    count = pages.retired + pages.pending + pages.unreservable
    if count and is_unreadable(pages.limit):
        return Judgement(Verdict.UNKNOWN, f"{count} pages; limit {pages.limit}", AS_ROOT)
    shown = f"{count} pages" if is_unreadable(pages.limit) else f"{count} of {pages.limit} pages"
    if not is_unreadable(pages.limit) and 0 < pages.limit <= count:
        return Judgement(Verdict.FAIL, shown, Remedy(text="drain the node and have the GPU (OAM) exchanged"))
    if not is_unreadable(pages.limit) and pages.limit and count >= NEAR * pages.limit:
        service = Remedy(text="replace the GPU (OAM) at the next service: AMD does at the limit")
        return Judgement(Verdict.WARN, shown, service)
    if pages.pending or pages.unreservable:
        words = f"{shown}, of them {pages.pending + pages.unreservable} still in use"
        return Judgement(Verdict.WARN, words, Remedy(text="reboot the node, or reload the driver, to retire the pages"))
    return Judgement(Verdict.OK, shown)


@check("gpu_power_cap", "gpu.power_cap_w", "gpu.count", follows=(*GPUS, "gpu_tool"))
def gpu_power_cap(desired: DesiredState, state: NodeState) -> Comparison | None:
    """Compare the power cap of each GPU with gpu.power_cap_w, or with the GPU's own default: a capped GPU slows every
    collective."""
    least = desired.gpu.power_cap_w

    def judge(_: Gpu, cap: PowerCap) -> Judgement:
        wanted = cap.default_watts if least is None else least
        if is_unreadable(wanted) or is_unreadable(cap.watts):
            unread = Judgement(Verdict.WARN, f"{cap.watts} W, default {wanted}", _NEWER)
            return unread._replace(verdict=Verdict.UNKNOWN) if is_unreadable(cap.watts) else unread
        if cap.watts >= wanted:
            return Judgement(Verdict.OK, f"{cap.watts:g} W")
        text = f"set the cap to {wanted:g} W (`amd-smi set --power-cap`), or ask for less: gpu.power_cap_w"
        return Judgement(Verdict.FAIL, f"{cap.watts:g} of {wanted:g} W", Remedy(text=text))

    wanted = "the model's default" if least is None else f"at least {least} W"
    return _judge(desired, state, wanted, lambda gpu: gpu.power_cap, judge, explicit=least is not None)


@check("gpu_error_records", "gpu.count", follows=(*GPUS, "gpu_tool"), waivable=False)
def gpu_error_records(desired: DesiredState, state: NodeState) -> Comparison | None:
    """Judge the error records (CPER) of each GPU since the driver was loaded, by AMD's numbers of the events (AFID). A
    fatal record fails the GPU, but for the event of a GPU that works with its bad pages retired. Where a driver is
    known to report fatal records of healthy GPUs, another sign is needed."""

    def judge(gpu: Gpu, records: list[ErrorRecord]) -> Judgement:
        judged = [_judge_record(record) for record in records]
        worst = max(judged, key=lambda judgement: _ORDER.index(judgement.verdict), default=Judgement(Verdict.OK, ""))
        if worst.verdict is Verdict.OK:
            return Judgement(Verdict.OK, f"{len(records)} records of corrected errors" if records else "no record")
        more = f" ({len(records)} records)" if len(records) > 1 else ""
        found = worst._replace(shown=f"{worst.shown}{more}")
        if worst.verdict is Verdict.FAIL and _is_doubtful(gpu) and not _other_sign(gpu, state):
            remedy = Remedy(text=f"look for another sign of a fault; {data('afid.json')['doubtful']['source']}")
            return found._replace(verdict=Verdict.WARN, shown=f"{found.shown}, no other sign of a fault", remedy=remedy)
        return found

    return _judge(desired, state, "no record of a fatal error", lambda gpu: gpu.error_records, judge)


def _judge_record(record: ErrorRecord) -> Judgement:
    knowledge = data("afid.json")
    afids = [] if is_unreadable(record.afids) else record.afids
    events = [knowledge["events"].get(str(afid), ["unknown event", "unread", "unread"]) for afid in afids]
    kinds = {kind for _, kind, _ in events}
    names = ", ".join(f"AFID {afid}, {event[0]}" for afid, event in zip(afids, events))  # noqa: B905
    shown = f"{record.severity.replace('_', ' ')}: {names or f'AFID {record.afids}'}, {record.at}"
    actions = [action for _, kind, action in events if kind == "fatal"] or [event[2] for event in events]
    remedy = Remedy(text=knowledge["actions"][actions[0] if actions else "unread"])
    if "fatal" in kinds or (record.severity == "fatal" and kinds != {"works"}):
        return Judgement(Verdict.FAIL, shown, remedy)
    harmless = record.severity == "non_fatal_corrected" and kinds <= {"corrected"}
    return Judgement(Verdict.OK if harmless else Verdict.WARN, shown, remedy)


def _is_doubtful(gpu: Gpu) -> bool:
    """Return whether this GPU's driver is known to report fatal records of healthy GPUs."""
    doubtful = data("afid.json")["doubtful"]
    if gpu.pci_id not in doubtful["pci_ids"] or is_unreadable(gpu.driver):
        return False
    driver, first = numbers(gpu.driver), numbers(doubtful["driver"])
    return driver >= (first if driver[:1] >= (first[0] - 10,) else numbers(doubtful["module"]))


def _other_sign(gpu: Gpu, state: NodeState) -> bool:
    """Return whether anything else reports a fault of this GPU."""
    ecc, pages = gpu.ecc_uncorrectable, gpu.bad_pages
    kernel = [] if is_unreadable(state.kernel_log.records) else state.kernel_log.records
    counted = not is_unreadable(ecc) and ecc > 0
    retired = not is_unreadable(pages) and pages.retired + pages.pending + pages.unreservable > 0
    return counted or retired or any(gpu.bdf in str(record) for record in kernel)


@check("gpu_throttled", "gpu.count", follows=(*GPUS, "gpu_tool"))
def gpu_throttled(desired: DesiredState, state: NodeState) -> Comparison | None:
    """Report what limits a GPU at the moment of the check, without a job. Advice: gpu.no_throttling judges the job."""
    remedy = Remedy(text="look at fans, inlet temperature, cold plates and power supplies: the GPU has no load")

    def judge(_: Gpu, reasons: list[str]) -> Judgement:
        return Judgement(Verdict.WARN, ", ".join(reasons), remedy) if reasons else Judgement(Verdict.OK, "nothing")

    return _judge(desired, state, "nothing limits a GPU", lambda gpu: gpu.throttled, judge)


@check_wanted("gpu_peers", "gpu.xgmi_links", follows=(*GPUS, "gpu_tool", "gpu_xgmi"))
def gpu_peers(desired: DesiredState, state: NodeState, wanted: int) -> Comparison | None:
    """Check that each GPU reaches the others of its board by XGMI, with lanes of one rate."""
    if is_unreadable(state.gpus):
        return None
    readings = [gpu.peers for gpu in state.gpus if not is_unreadable(gpu.peers)]
    least = min(wanted, len(state.gpus) - 1)
    usual = max((peer.gts or 0 for peers in readings for peer in peers.values()), default=0)
    power = Remedy(
        text="power-cycle the node, which trains the links again; have the base board examined where it stays"
    )

    def judge(_: Gpu, peers: Mapping[str, Any]) -> Judgement:
        by_other = [f"{bdf} by {peer.kind}" for bdf, peer in peers.items() if peer.kind != "XGMI"]
        slow = [f"{bdf} at {peer.gts} GT/s" for bdf, peer in peers.items() if peer.gts and peer.gts < usual]
        if len(peers) - len(by_other) < least:
            return Judgement(Verdict.FAIL, ", ".join(by_other) or f"{len(peers)} GPUs", power)
        if slow:
            return Judgement(Verdict.WARN, ", ".join(slow), power)
        return Judgement(Verdict.OK, f"XGMI to {len(peers) - len(by_other)}")

    return _judge(desired, state, f"XGMI to {wanted}", lambda gpu: gpu.peers, judge)
