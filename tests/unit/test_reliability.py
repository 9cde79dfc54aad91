"""Reliability from the ledger: exact intervals (as scipy 1.17.1 has them, 2026-11-29), spells, repairs, lemons."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.trials import lemons
from shakedown.cli import main
from shakedown.ledger import reliability as reliability_module
from shakedown.ledger import schema
from shakedown.ledger.reliability import (
    RETURN_S,
    Course,
    Event,
    Reliability,
    binomial_least,
    chi2_quantile,
    false_discovery,
    lemon_odds,
    mtbf_interval,
    poisson_below,
    reliability,
    share_interval,
)
from shakedown.ledger.store import Ledger, open_ledger

HOUR, DAY = 3600, 24 * 3600
BEGIN = 1_790_000_000


@pytest.mark.parametrize(
    ("count", "share", "quantile"),
    [
        (1, 0.025, 0.05063561596857975),
        (1, 0.975, 7.377758908227871),
        (4, 0.975, 17.534546139484647),
        (3, 0.025, 1.2373442457912027),
        (100, 0.5, 199.33372983863097),
        (1000, 0.0001, 1773.2965228301573),
    ],
)  # scipy.stats.chi2.ppf(share, 2 * count)
def test_quantiles_of_chi_squared_are_exact(count: int, share: float, quantile: float) -> None:
    assert chi2_quantile(share, count) == pytest.approx(quantile, rel=1e-7)
    assert 1 - poisson_below(count, quantile / 2) == pytest.approx(share, rel=1e-5)


def test_intervals_of_the_mean_time_between_failures() -> None:
    assert mtbf_interval(368_640, 3) == pytest.approx((42_047.28164, 595_856.81390))
    low, high = mtbf_interval(8 * 24, 0)
    assert (low, high) == (pytest.approx(52.04833), None), "no failure shows a lower bound and no more"
    assert mtbf_interval(512 * 24, 0)[0] == pytest.approx(3_331.09286)


def test_odds_of_a_share_as_scipy_has_them() -> None:
    assert binomial_least(4, 20, 1 / 64) == pytest.approx(0.00023633056)  # binomtest(4, 20, 1 / 64, "greater")
    assert binomial_least(1, 200, 0.0001) == pytest.approx(0.019802306957)
    assert (binomial_least(0, 5, 0.1), binomial_least(6, 5, 0.1), binomial_least(3, 5, 1.0)) == (1.0, 0.0, 1.0)
    assert binomial_least(1, 4000, 0.5) == pytest.approx(1), "the first terms are small, and are not the last"
    assert share_interval(3, 40) == pytest.approx((0.01574217985, 0.20386474873))
    assert share_interval(0, 5) == pytest.approx((0.0, 0.52182375011))
    assert share_interval(5, 5) == pytest.approx((0.47817624989, 1.0))
    assert false_discovery([0.01, 0.2, 0.03, 0.5, 1]) == pytest.approx([0.05, 1 / 3, 0.075, 0.625, 1.0])
    assert false_discovery([]) == []


def test_four_of_twenty_failures_on_one_of_64_nodes_is_a_lemon() -> None:
    hours = {f"n{number}": 100.0 for number in range(64)}
    failures = {"n0": 4, **{f"n{number}": 1 for number in range(1, 17)}}
    p, q = lemon_odds(hours, failures)["n0"]
    assert (p, q) == (pytest.approx(2.4e-4, rel=0.05), pytest.approx(0.015, rel=0.05))
    assert lemon_odds({"n0": 0.0}, {}) == {"n0": (1.0, 1.0)}


@pytest.mark.parametrize(("bad", "times"), [(2, 6.0), (5, 10.0), (10, 15.0)])
def test_nine_of_ten_lemons_are_bad_nodes(bad: int, times: float) -> None:
    """As the bench simulates them; docs/developers/accuracy.md has more fleets."""
    found = lemons(128, bad, times, fleets=60)
    assert found.named >= 60 * bad / 3, "lemons are named at all"
    assert found.right / found.named >= 0.9


def test_a_fleet_without_bad_nodes_seldom_has_a_lemon() -> None:
    assert lemons(128, 0, 1.0, fleets=100).blamed <= 10


# ------------------------------------------------------------------------------------------------------------- spells


def course(*events: tuple[float, str], now: float = 1000) -> Course:
    order = {"repair": 0, "passed": 1, "failed": 2}
    return Course([Event(int(at * DAY), order[what], what) for at, what in events], int(now * DAY))


def test_what_is_reported_until_a_repair_is_one_failure() -> None:
    one = course((1, "failed"), (2, "failed"), (3, "failed"), (4, "repair"), (5, "passed"))
    assert (one.failures, one.repairs, one.times, one.held) == (1, 1, [4 * DAY], [True])
    open_ = course((1, "failed"), (2, "failed"))
    assert (open_.failures, open_.since, open_.times) == (1, DAY, [])
    gone = course((1, "failed"), (2, "passed"), (3, "failed"), (4, "passed"))
    assert (gone.failures, gone.repairs, gone.held) == (2, 0, []), "without a repair nothing has held"


def test_a_repair_after_which_a_node_fails_again_has_not_held() -> None:
    at_once = course((1, "failed"), (2, "repair"), (3, "failed"), (4, "repair"), (5, "repair"), (6, "passed"))
    assert (at_once.failures, at_once.repairs, at_once.held) == (2, 2, [False, True])
    soon = course((1, "failed"), (2, "repair"), (3, "passed"), (9, "failed"))
    assert soon.held == [False] and soon.failures == 2
    later = course((1, "failed"), (2, "repair"), (3, "passed"), (11, "failed"))
    assert later.held == [True]
    assert course((1, "failed"), (2, "repair"), (3, "passed"), now=4).held == [], "not known yet"
    assert RETURN_S == 7 * DAY


# ------------------------------------------------------------------------------------------------------------- ledger


class Rack:
    """A ledger with runs of an hour: who took part, who was accused, who passed."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.runs = ledger, 0

    def run(self, at: int, nodes: dict[str, str], accused: dict[str, str] | None = None, origin: str = "") -> None:
        self.runs += 1
        run_id = f"{origin}{at}-{self.runs:06d}"
        blank = {"verdict": "ok", "inventory": "r", "desired": "d", "not_ok": 0, "wrong": "", "kept_at": "x"}
        with self.ledger.writing() as connection:
            run = {"run_id": run_id, "kind": "run", "started": at, "finished": at + HOUR, "nodes": len(nodes), **blank}
            connection.execute(schema.runs.insert(), [run])
            for number, (node, equipment) in enumerate(nodes.items()):
                row = {"run_id": run_id, "node": node, "started": at, "verdict": "ok", "part": "trained", "why": ""}
                connection.execute(schema.nodes.insert(), [{**row, "equipment": equipment}])
                if accused and node in accused:
                    said = {"source": "finding", "name": "gpu_ecc", "what": accused[node], "drift": 0, "drains": 1}
                    row = {"run_id": run_id, "number": number, "node": node, "at": at, **said}
                    connection.execute(schema.accusations.insert(), [row])
                else:
                    row = {"run_id": run_id, "node": node, "load": "smoke", "at": at, "others": 1}
                    connection.execute(schema.proofs.insert(), [row])

    def parts(self, equipment: str, *parts: tuple[str, str, str]) -> None:
        rows = [
            {
                "equipment": equipment,
                "kind": kind,
                "slot": slot,
                "serial": serial,
                "number": serial,
                "model": "",
                "firmware": "",
            }
            for kind, slot, serial in parts
        ]
        with self.ledger.writing() as connection:
            connection.execute(schema.parts.insert(), rows)

    def repair(self, node: str, at: int) -> None:
        step: dict[str, Any] = {"node": node, "at": at, "done": "begun", "rung": "reboot", "name": "", "outcome": ""}
        with self.ledger.writing() as connection:
            connection.execute(schema.steps.insert(), [{**step, "why": "", "run_id": "", "who": ""}])


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rack:
    monkeypatch.setenv("SHAKEDOWN_LEDGER", str(tmp_path / "ledger.sqlite"))
    return Rack(open_ledger())


def read(rack: Rack, **more: Any) -> Reliability:
    return reliability(rack.ledger, BEGIN + 400 * DAY, **more)


def test_hours_follow_a_part_through_the_nodes(rack: Rack) -> None:
    rack.parts("e1", ("gpu", "0000:04:00.0", "a1"), ("board", "", "b1"))
    rack.parts("e2", ("gpu", "0000:06:00.0", "a1"), ("board", "", "b2"))
    for day in range(10):
        rack.run(BEGIN + day * DAY, {"node01": "e1", "node02": "none"})
    moved = {"node02": "{'0000:06:00.0': 3} where 0 is wanted"}
    for day in range(10, 20):
        rack.run(BEGIN + day * DAY, {"node02": "e2"}, moved if day in (12, 15) else None)
    rack.run(BEGIN + 20 * DAY, {"x/node09": "e2"}, origin="x/")
    found = read(rack)
    rates = {rate.kind: rate for rate in found.rates}
    assert {kind: (rate.units, rate.hours, rate.failures) for kind, rate in rates.items()} == {
        "node": (2, 30.0, 2), "board": (2, 20.0, 0), "gpu": (1, 20.0, 2),
    }  # fmt: skip
    assert rates["gpu"].mtbf_h == 10.0 and rates["board"].high_h is None
    assert rates["board"].low_h == pytest.approx(mtbf_interval(20, 0)[0])
    unit = next(unit for unit in found.units if unit.kind == "gpu")
    assert (unit.unit, unit.nodes, unit.hours, unit.failures) == ("a1", ["node01", "node02"], 20.0, 2)
    assert read(rack, since=datetime.fromtimestamp(BEGIN + 14 * DAY, UTC)).rates[0].failures == 1


@pytest.mark.parametrize("together", [True, False])
def test_a_serial_that_two_nodes_claim_counts_for_none_and_is_reported(rack: Rack, together: bool) -> None:
    """A clone, or a node that lies: in one run, or by turns."""
    rack.parts("e1", ("gpu", "0000:04:00.0", "a1"), ("gpu", "0000:05:00.0", "a2"))
    rack.parts("e2", ("gpu", "0000:04:00.0", "a1"), ("gpu", "0000:05:00.0", "a3"))
    for day in range(10):
        at, wrong = BEGIN + day * DAY, {"node02": "0000:04:00.0 has failed"} if day % 3 == 0 else None
        if together:
            rack.run(at, {"node01": "e1", "node02": "e2"}, wrong)
        else:
            rack.run(at, {"node01": "e1"})
            rack.run(at + 2 * HOUR, {"node02": "e2"}, wrong)
    found = read(rack)
    assert [(claim.kind, claim.unit, claim.nodes) for claim in found.claimed] == [("gpu", "a1", ["node01", "node02"])]
    gpus = next(rate for rate in found.rates if rate.kind == "gpu")
    assert (gpus.units, gpus.hours, gpus.failures) == (2, 20.0, 0), "those of a2 and a3 alone"
    assert [unit.unit for unit in found.units] == ["node02"]
    shown = CliRunner().invoke(main, ["reliability"]).output
    assert "gpu a1: node01, node02 claim this serial number, so it counts for none" in " ".join(shown.split())


def test_a_planted_lemon_is_named_on_the_screen_and_in_json(rack: Rack) -> None:
    nodes = {f"node{number:02d}": f"e{number}" for number in range(16)}
    for day in range(30):
        accused = {"node07": "bad"} if day % 3 == 0 else {"node03": "once"} if day == 10 else None
        rack.run(BEGIN + day * DAY, nodes, accused)
    rack.repair("node07", BEGIN + 3 * DAY + HOUR)
    found = read(rack)
    lemon = next(unit for unit in found.units if unit.lemon)
    assert [unit.unit for unit in found.units if unit.lemon] == ["node07"]
    assert (lemon.failures, lemon.spells, lemon.ratio) == (10, 2, pytest.approx(150.0))
    assert lemon.low is not None and 15 < lemon.low < 150
    assert found.repairs.repaired == 11 and found.repairs.median_h == pytest.approx(24.0)
    assert (found.repairs.attempts, found.repairs.held, found.repairs.open) == (1, 0, 0)
    shown = CliRunner().invoke(main, ["reliability"])
    assert shown.exit_code == 0, shown.output
    assert "node07" in shown.output and "0 of 1" in shown.output and "150.0" in shown.output
    whole = json.loads(CliRunner().invoke(main, ["reliability", "--format", "json"]).output)
    assert [unit["unit"] for unit in whole["units"] if unit["lemon"]] == ["node07"]


def test_a_ledger_without_failures_shows_a_bound_and_says_so(rack: Rack) -> None:
    assert "there is none yet" in CliRunner().invoke(main, ["reliability"]).output
    rack.run(BEGIN, {f"node{number}": "e" for number in range(8)})
    shown = CliRunner().invoke(main, ["reliability"]).output
    assert "no failure" in shown and "at least 2 h" in shown and "no lemon" in shown


@pytest.mark.parametrize(
    ("failed", "limit", "lemon"), [(2, 1.0, True), (2, 0.999, False), (1, 1.0, False), (3, 1.0, True)]
)
def test_a_lemon_has_failed_more_than_once_and_its_odds_are_at_most_the_limit(
    failed: int, limit: float, lemon: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours, failures = {"a": 100.0, "b": 100.0, "c": 100.0}, {"a": failed, "b": 1}
    monkeypatch.setattr(reliability_module, "LEMON", lemon_odds(hours, failures)["a"][1] * limit)
    courses = {("gpu", unit): Course([], 0) for unit in hours}
    units = {
        unit.unit: unit
        for unit in reliability_module._units("gpu", hours, failures, dict.fromkeys(courses, ("n",)), courses)
    }
    assert units["a"].lemon == lemon and not units["b"].lemon
