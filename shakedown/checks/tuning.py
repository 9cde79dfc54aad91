"""Host settings: each module of shakedown/node/settings that the desired state's `tuning` asks for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from shakedown.checks import check
from shakedown.checks.compare import at_boot, compare_setting, remedy_of, unknown
from shakedown.desired.models import DesiredState, Tuning
from shakedown.node.setting import Setting as Known
from shakedown.node.setting import proc_path
from shakedown.node.settings import SETTINGS
from shakedown.state.findings import Comparison, Verdict
from shakedown.state.node import NOT_READ, NodeState, Setting, Unreadable, is_unreadable


def compare(known: Known, desired: DesiredState, state: NodeState) -> Comparison | None:
    """Compare a setting that a node has once."""
    value = getattr(desired.tuning, known.name)
    if value is None:
        return None
    wanted = known.word(value)
    setting, more = _now_and_later(known, wanted, state)
    if isinstance(setting, Unreadable):
        return unknown(wanted, setting, evidence=known.evidence)
    running = setting.running
    if known.absent == wanted and is_unreadable(running) and running.unreadable == "missing":
        evidence = f"{known.evidence.partition(',')[0]}: not there, a kernel without it"
        return Comparison(verdict=Verdict.OK, wanted=wanted, actual="absent", evidence=evidence)
    remedy = partial(remedy_of, known, wanted, state, right_now=running == wanted)
    evidence = known.evidence + more
    return compare_setting(wanted, setting, evidence=evidence, unit=known.unit, remedy=remedy)


def _now_and_later(known: Known, wanted: str, state: NodeState) -> tuple[Setting | Unreadable, str]:
    """Return the setting's values, and what the evidence adds where it stands at several places of the node."""
    if not known.place:
        return state.settings.get(known.name, NOT_READ), ""
    reading: Any = state
    for part in known.place.split("."):
        reading = getattr(reading, part)
    if is_unreadable(reading) or hasattr(reading, "running"):  # a setting: on a node each model is a dictionary
        return reading, ""
    running, more = known.summary(reading, wanted, state.cpu.count)
    return Setting(running=running, persisted=at_boot(state.boot_unit, known.key())), more


for _name in Tuning.model_fields:
    if _name in SETTINGS and not SETTINGS[_name].details:
        check(_name, f"tuning.{_name}")(partial(compare, SETTINGS[_name]))


@check("sysctl", "tuning.sysctl")
def sysctl(desired: DesiredState, state: NodeState) -> Iterator[Comparison]:
    """One finding per key."""
    known = SETTINGS["sysctl"]
    for key, value in desired.tuning.sysctl.items():
        wanted = known.word(value)
        setting = state.sysctl.get(key, Setting(running=NOT_READ, persisted=NOT_READ))
        remedy = partial(remedy_of, known, wanted, state, right_now=setting.running == wanted, detail=key)
        evidence = known.evidence.format(proc_path(key)[len("/proc/sys/") :])
        yield compare_setting(wanted, setting, evidence=evidence, remedy=remedy).about(key)
