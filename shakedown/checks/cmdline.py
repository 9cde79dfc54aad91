"""The kernel command line: merged with what is there, and right only when the running kernel has it."""

from __future__ import annotations

from collections.abc import Sequence

from shakedown.checks import check
from shakedown.checks.compare import unknown
from shakedown.desired.models import DesiredState
from shakedown.state.findings import Comparison, FixedBy, Remedy, Risk, Verdict
from shakedown.state.node import NodeState, is_unreadable

_VENDORS = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}
_COLLECTED = ("pci",)  # the kernel adds up what each occurrence says; of any other parameter the last one rules


@check("cmdline", "tuning.cmdline")
def cmdline(desired: DesiredState, state: NodeState) -> Comparison | None:
    """Every wanted parameter is there now and at the next boot. Only a reboot brings it into the running kernel."""
    if not desired.tuning.cmdline:
        return None
    if any("{cpu}" in parameter for parameter in desired.tuning.cmdline):
        vendor = state.cpu.vendor
        if is_unreadable(vendor):
            return unknown(desired.tuning.cmdline, vendor, evidence="/proc/cpuinfo")
        if vendor not in _VENDORS:
            evidence = f"/proc/cpuinfo: CPU vendor {vendor} is neither of {', '.join(_VENDORS)}"
            wanted = desired.tuning.cmdline
            remedy = Remedy(text="write the parameters of this CPU into tuning.cmdline, in place of {cpu}")
            return Comparison(verdict=Verdict.UNKNOWN, wanted=wanted, evidence=evidence, remedy=remedy)
        wanted = [parameter.replace("{cpu}", _VENDORS[vendor]) for parameter in desired.tuning.cmdline]
    else:
        wanted = list(desired.tuning.cmdline)
    return _compare(wanted, desired, state)


def _compare(wanted: list[str], desired: DesiredState, state: NodeState) -> Comparison:
    running, persisted = state.cmdline.running, state.cmdline.persisted
    if is_unreadable(running):
        return unknown(wanted, running, evidence="/proc/cmdline")
    lacks_now = missing(wanted, running)
    no_loader = state.cmdline.loader == "none"
    if is_unreadable(persisted) and not lacks_now:
        where = "no boot loader known, so nothing says what the next boot has" if no_loader else "boot loader"
        return unknown(wanted, persisted, evidence=where)
    lacks_later = wanted if is_unreadable(persisted) else missing(wanted, persisted)
    evidence = [f"/proc/cmdline lacks {' '.join(lacks_now)}" if lacks_now else "/proc/cmdline has them all"]
    if is_unreadable(persisted):
        evidence.append("no boot loader known" if no_loader else f"boot loader: {persisted}")
    elif lacks_later:
        evidence.append(f"the boot loader ({state.cmdline.loader}) lacks {' '.join(lacks_later)}")

    verdict = Verdict.DRIFT if lacks_now or lacks_later else Verdict.OK
    if no_loader and lacks_later:
        verdict = Verdict.FAIL  # no operation can reach whatever boots this machine
    return Comparison(
        verdict=verdict,
        wanted=wanted,
        actual=[parameter for parameter in wanted if parameter not in lacks_now],
        persisted=None if is_unreadable(persisted) else [item for item in wanted if item not in lacks_later],
        reboot_pending=bool(lacks_now) and not lacks_later,
        evidence="; ".join(evidence),
        remedy=None if verdict == Verdict.OK else _remedy(wanted, lacks_later, no_loader, desired),
    )


def _remedy(wanted: list[str], lacks_later: list[str], no_loader: bool, desired: DesiredState) -> Remedy:
    if lacks_later and no_loader:
        return Remedy(
            text=f"add {' '.join(lacks_later)} in what boots this machine (no boot loader is known), then reboot"
        )
    if lacks_later:
        return Remedy(
            text=f"add {' '.join(lacks_later)} to the boot loader's kernel parameters",
            operation="cmdline.kernel_parameters",
            arguments={"parameters": wanted},
            risk=Risk.REBOOT,
        )
    if desired.system.reboot == "never":
        text = 'reboot the node by hand, or allow it: system.reboot = "when needed"'
        return Remedy(text=text, risk=Risk.REBOOT, by=FixedBy.REBOOT)
    return Remedy(
        text="reboot",
        operation="reboot.when_needed",
        arguments={
            "parameters": wanted,
            "at_once": desired.system.reboot_at_once,
            "timeout_s": desired.system.reboot_timeout_s,
        },
        risk=Risk.REBOOT,
    )


def missing(wanted: Sequence[str], line: Sequence[str]) -> list[str]:
    """Return the wanted parameters that a kernel started with this command line does not obey.

    A value may be one of several separated by commas: pci=realloc=off,bfsort holds pci=bfsort.
    """
    return [parameter for parameter in wanted if not _obeyed(parameter, line)]


def _obeyed(parameter: str, line: Sequence[str]) -> bool:
    key, equals, value = parameter.partition("=")
    if not equals:
        return parameter in line
    values = [word.partition("=")[2].split(",") for word in line if word.startswith(key + "=")]
    ruling = values if key in _COLLECTED else values[-1:]
    return any(value in values or value.split(",") == values for values in ruling)
