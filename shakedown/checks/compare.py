"""What the checks share: unreadable becomes unknown, and the comparison of a setting's three values, and of several
devices with one wanted value."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from shakedown.node import tree
from shakedown.node.boot import setting_at_boot
from shakedown.node.setting import Setting as Known
from shakedown.state.findings import Comparison, FixedBy, Remedy, Risk, Verdict
from shakedown.state.node import BootUnit, NodeState, Reading, Setting, Unreadable, is_unreadable

AS_ROOT = Remedy(text="read it as root: run with _sudo=True, or as a user that may read it")
_READ_AGAIN = {
    "not permitted": AS_ROOT,
    "missing": Remedy(text="find out why the node does not have it: a driver, a package, an option of the kernel"),
    "timed out": Remedy(text="look at the node's load and for devices that hang, then check again"),
    "malformed": Remedy(text="read it on the node, and compare it with a healthy node"),
    "failed": Remedy(text="repair what the reason names, then check again"),
}
NOT_SET = "not set"  # nothing on the node writes a value down for the next boot
NEW_LOGIN = Remedy(text="log in again: what is written down counts for new sessions", by=FixedBy.LOGIN)


def comparison(
    verdict: Verdict, wanted: Any, actual: Any, evidence: str, remedy: Remedy | None = None, unit: str | None = None
) -> Comparison:
    """Return a comparison that has its remedy only where the verdict is not ok."""
    remedy = None if verdict is Verdict.OK else remedy
    return Comparison(verdict, wanted=wanted, actual=actual, unit=unit, evidence=evidence, remedy=remedy)


def unknown(wanted: Any, reading: Unreadable, *, evidence: str = "", remedy: Remedy | None = None) -> Comparison:
    """Judge a reading that could not be taken. Its reason is the evidence, and the remedy is for that."""
    text = f"{evidence}: {reading}" if evidence and evidence not in str(reading) else str(reading)
    return Comparison(verdict=Verdict.UNKNOWN, wanted=wanted, evidence=text, remedy=remedy or read_again(reading))


def read_again(reading: Unreadable) -> Remedy:
    """Return what to do about a reading that could not be taken."""
    return _READ_AGAIN[reading.unreadable]


def compare_setting(
    wanted: Any,
    setting: Setting,
    *,
    evidence: str,
    remedy: Remedy | Callable[[], Remedy] | None,
    unit: str | None = None,
) -> Comparison:
    """Judge a setting that can be changed now and kept across a reboot. `remedy` may make the remedy of a setting
    that differs.

    Right now but wrong after the next boot has drifted; a value that nothing writes down is the kernel's choice at
    the next boot, and so not known to be right. Text is compared: what the kernel prints with what is wanted.
    """
    if is_unreadable(setting.running):
        return unknown(wanted, setting.running, evidence=evidence)
    runs = setting.running == str(wanted)
    if runs and is_unreadable(setting.persisted):
        return unknown(wanted, setting.persisted, evidence=f"{evidence} is right; after a boot")
    persisted = None if is_unreadable(setting.persisted) else setting.persisted
    kept = persisted == str(wanted)
    if runs and persisted is None:
        persisted = NOT_SET  # this is what differs, so it is shown
    return Comparison(
        verdict=Verdict.OK if runs and kept else Verdict.DRIFT,
        wanted=wanted,
        actual=setting.running,
        persisted=persisted,
        reboot_pending=kept and not runs,
        unit=unit,
        evidence=evidence,
        remedy=None if runs and kept else remedy() if callable(remedy) else remedy,
    )


def installed(wanted: str, reading: Reading[str], remedy: Remedy) -> Comparison:
    """Software that is there, whatever its version. That it is missing is known, and is drift that a person fixes."""
    if not is_unreadable(reading):
        return Comparison(verdict=Verdict.OK, wanted=wanted, actual=reading)
    if reading.unreadable != "missing":
        return unknown(wanted, reading)
    return comparison(Verdict.DRIFT, wanted, "not there", str(reading), remedy)


@functools.lru_cache
def data(name: str) -> dict[str, Any]:
    """Return a data file of the checks. In JSON: the files travel to nodes whose Python reads nothing else."""
    here = os.path.dirname(__file__)  # noqa: PTH120 - a node would pay 4 ms for pathlib
    with open(f"{here}/{name}", encoding="utf-8") as file:  # noqa: PTH123 - likewise
        content: dict[str, Any] = json.load(file)
    return content


def at_boot(unit: BootUnit, key: str) -> Reading[str | None]:
    """Return what our boot unit would set for a key at the next boot, as the probe tells it of the settings it
    reads."""
    try:
        return setting_at_boot(unit.model_dump(), key)
    except tree.Unreadable as why:
        return Unreadable.model_validate(why.as_part())


def boot_remedy(
    text: str, settings: Mapping[str, str | int], state: NodeState, *, right_now: bool, risk: Risk = Risk.SAFE
) -> Remedy:
    """Return the operation that sets something now and, by our unit, at every boot. Without systemd it can only set it
    now; a value that is `right_now` is then a person's to keep, and the finding stays drift."""
    systemd = state.system.service_manager == "systemd"
    if right_now and not systemd:
        return Remedy(text=f"{text}, where this node sets things at boot: without systemd there is no unit that would")
    when = "now and at boot" if systemd else "now only: without systemd there is no boot unit"
    return Remedy(text=f"{text}, {when}", operation="boot.settings", arguments={"settings": dict(settings)}, risk=risk)


def remedy_of(known: Known, wanted: str | int, state: NodeState, *, right_now: bool, detail: str = "") -> Remedy:
    """Return the operation that changes a setting now and for the next boot."""
    text, risk = known.text(str(wanted), detail), Risk(known.risk)
    if known.by_unit:
        key = f"{known.key()}.{detail}" if detail else known.key()
        return boot_remedy(text, {key: wanted}, state, right_now=right_now, risk=risk)
    value = {"enabled": wanted == "1"} if known.switch else {"value": wanted}
    arguments = {"key": detail, **value} if detail else value
    return Remedy(text=f"{text}, now and at boot", operation=f"tuning.{known.name}", arguments=arguments, risk=risk)


NO_DEVICE = Remedy(text="bring the devices up first, then check again")


def compare_several(
    wanted: Any,
    readings: Mapping[str, Reading[Any]],
    right: Callable[[Any], bool],
    *,
    otherwise: Verdict = Verdict.FAIL,
    unit: str | None = None,
    evidence: str = "",
    remedy: Remedy | Callable[[], Remedy] | None = None,
) -> Comparison:
    """Judge `readings` (device -> reading) in one finding. `actual` maps only the devices that differ to what they
    have; where all are right it is their common value. `remedy` may make the remedy. Without any device nothing was
    seen to be right: unknown (see `nothing_there` for a caller that knows why there is none)."""
    values = list(readings.values())
    if values and values.count(values[0]) == len(values) and not is_unreadable(values[0]) and right(values[0]):
        return comparison(Verdict.OK, wanted, values[0], evidence, unit=unit)
    read = {key: value for key, value in readings.items() if not is_unreadable(value)}
    wrong = {key: value for key, value in read.items() if not right(value)}
    unread = {key: value for key, value in readings.items() if is_unreadable(value)}
    parts = [evidence, *(f"{key}: {value}" for key, value in unread.items())]
    if not readings:
        parts.append("there is no such device")
    if wrong:
        verdict, actual = otherwise, wrong
        remedy = remedy() if callable(remedy) else remedy
    elif unread or not readings:
        verdict, actual = Verdict.UNKNOWN, None
        remedy = read_again(next(iter(unread.values()))) if unread else NO_DEVICE
    else:
        verdict, actual, remedy = Verdict.OK, common(read), None
    return comparison(verdict, wanted, actual, "; ".join(part for part in parts if part), remedy, unit=unit)


def nothing_there(wanted: Any, *, count: int, why: str, unit: str | None = None) -> Comparison:
    """Judge a request about devices of which there are none. Where `count` of them are wanted, nothing was seen to be
    right: unknown, and `why` names the finding that says more. Where none is wanted all is well."""
    if count:
        return comparison(Verdict.UNKNOWN, wanted, None, why, NO_DEVICE, unit=unit)
    return comparison(Verdict.OK, wanted, "none wanted", "none is wanted: count is 0")


def common(values: Mapping[str, Any]) -> Any:
    """Return the one value that all have, or the mapping itself where they differ."""
    different = list(dict.fromkeys(str(value) for value in values.values()))
    return next(iter(values.values())) if len(different) == 1 else dict(values)


def missing(reading: object) -> bool:
    """Tell whether the reading says that the thing itself is not there, which is knowledge, not ignorance."""
    return isinstance(reading, Unreadable) and reading.unreadable == "missing"
