"""A check is a function in a module of its own: found and run, and its findings have its name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from shakedown import checks
from shakedown.desired.models import DesiredState
from shakedown.state.findings import Comparison, Verdict
from shakedown.state.node import NodeState
from tests.states import desired, healthy


@pytest.fixture
def registered() -> Iterator[None]:
    checks.checks()
    kept, answers = dict(checks._CHECKS), dict(checks._ANSWERS)
    yield
    for now, before in ((checks._CHECKS, kept), (checks._ANSWERS, answers)):
        now.clear()
        now.update(before)


def test_every_check_is_found_with_its_keys() -> None:
    assert checks.checks().keys() == checks.answers().keys()
    assert checks.answers()["mpi"] == ("system.mpi",)


def test_the_order_is_the_same_whichever_module_was_imported_first() -> None:
    script = """if True:
        import importlib, sys
        for module in sys.argv[1:]:
            importlib.import_module(module)
        from shakedown import checks
        print(*checks.checks())
    """
    orders = [
        subprocess.run([sys.executable, "-c", script, *first], capture_output=True, text=True, check=True).stdout
        for first in ([], ["shakedown.checks.support", "shakedown.checks.rdma"])
    ]
    assert orders[0] == orders[1]


def test_a_check_is_run_after_those_that_have_a_place_and_names_what_it_finds(registered: None) -> None:
    @checks.check("uptime", "system.memory")
    def uptime(desired: DesiredState, state: NodeState) -> Iterator[Comparison]:
        yield Comparison(verdict=Verdict.OK)
        yield Comparison(verdict=Verdict.OK).about("days")

    last = checks.evaluate(desired(), healthy(), "n")[-2:]
    assert [(each.name, each.node) for each in last] == [("uptime", "n"), ("uptime.days", "n")]
    with pytest.raises(ValueError, match="two checks are named 'uptime'"):
        checks.check("uptime")(lambda _desired, _state: None)


def test_a_check_that_raises_is_an_unknown_finding_that_names_it(registered: None) -> None:
    @checks.check("uptime", "system.memory")
    def uptime(desired: DesiredState, state: NodeState) -> Iterator[Comparison]:
        yield Comparison(verdict=Verdict.OK)
        raise KeyError("days")

    last = checks.evaluate(desired(), healthy(), "n")[-1]
    assert (last.name, last.verdict) == ("uptime", Verdict.UNKNOWN)
    assert "the check uptime itself failed: KeyError" in last.evidence
