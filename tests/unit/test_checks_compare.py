"""A setting's three values, what our boot unit would set, and what is said of a reading that could not be taken."""

from __future__ import annotations

from typing import Any

import pytest

from shakedown.checks.compare import (
    AS_ROOT,
    NOT_SET,
    at_boot,
    boot_remedy,
    compare_setting,
    installed,
    read_again,
    unknown,
)
from shakedown.state.findings import Comparison, Remedy, Risk, Verdict
from shakedown.state.node import BootUnit, Setting, Unreadable
from tests.states import healthy, with_

REMEDY = Remedy(text="fix")
FAILED = Unreadable(unreadable="failed", detail="/x")
GONE = Unreadable(unreadable="missing", detail="/x")
CLOSED = Unreadable(unreadable="not permitted", detail="/x")


def compared(running: Any, persisted: Any) -> Comparison:
    setting = Setting(running=running, persisted=persisted)
    return compare_setting(4096, setting, evidence="/proc/z", remedy=REMEDY, unit="bytes")


@pytest.mark.parametrize(
    ("running", "persisted", "verdict", "shown", "pending"),
    [
        ("4096", "4096", "ok", "4096", False),
        ("4096", None, "drift", NOT_SET, False),
        ("4096", "512", "drift", "512", False),
        ("512", "4096", "drift", "4096", True),
        ("512", None, "drift", None, False),
        ("512", FAILED, "drift", None, False),
        ("4096", FAILED, "unknown", None, False),
        (FAILED, "4096", "unknown", None, False),
    ],
)
def test_the_three_values(running: Any, persisted: Any, verdict: str, shown: str | None, pending: bool) -> None:
    finding = compared(running, persisted)
    assert (finding.verdict, finding.persisted, finding.reboot_pending) == (verdict, shown, pending)
    assert finding.remedy == {"drift": REMEDY, "ok": None}.get(verdict, read_again(FAILED))
    assert finding.wanted == 4096 and finding.evidence.startswith("/proc/z")


def test_what_could_not_be_read_says_why_and_asks_for_root_where_that_would_help() -> None:
    assert unknown(1, CLOSED).remedy == AS_ROOT and unknown(1, FAILED).remedy == read_again(FAILED)
    assert unknown(1, CLOSED, remedy=REMEDY).remedy == REMEDY
    assert unknown(1, FAILED).evidence == "unreadable (failed: /x)"
    assert unknown(1, FAILED, evidence="/y").evidence == "/y: unreadable (failed: /x)"
    assert unknown(1, FAILED, evidence="/x").evidence == "unreadable (failed: /x)", "not said twice"


@pytest.mark.parametrize(
    ("enabled", "settings", "value"),
    [
        (True, {"c2": "disabled"}, "disabled"),
        (True, {}, None),
        (False, {"c2": "disabled"}, None),
        (GONE, {"c2": "disabled"}, None),
        (True, GONE, None),
        (FAILED, {"c2": "disabled"}, FAILED),
        (True, FAILED, FAILED),
        (False, FAILED, None),
    ],
)
def test_what_our_unit_would_set(enabled: Any, settings: Any, value: Any) -> None:
    assert at_boot(BootUnit(enabled=enabled, settings=settings), "c2") == value


@pytest.mark.parametrize(
    ("manager", "right_now", "operation", "says"),
    [
        ("systemd", False, "boot.settings", "now and at boot"),
        ("systemd", True, "boot.settings", "now and at boot"),
        ("other", False, "boot.settings", "now only"),
        ("other", True, None, "where this node sets things at boot"),
    ],
)
def test_what_mends_a_setting_of_the_boot(manager: str, right_now: bool, operation: str | None, says: str) -> None:
    state = with_(healthy(), {"system.service_manager": manager})
    remedy = boot_remedy("C2 off", {"c2": "disabled"}, state, right_now=right_now, risk=Risk.DISRUPTIVE)
    assert remedy.operation == operation and says in remedy.text
    assert remedy.arguments == ({"settings": {"c2": "disabled"}} if operation else {})


def test_software_that_is_there_missing_or_not_known() -> None:
    there = installed("installed", "1.2", REMEDY)
    assert (there.verdict, there.actual, there.remedy) == (Verdict.OK, "1.2", None)
    gone = installed("installed", GONE, REMEDY)
    assert (gone.verdict, gone.actual, gone.remedy) == (Verdict.DRIFT, "not there", REMEDY)
    assert installed("installed", FAILED, REMEDY).verdict == Verdict.UNKNOWN
