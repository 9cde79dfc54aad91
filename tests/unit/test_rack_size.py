"""What grows with a rack grows with it once: counts of judgements, of saves, of names, for racks of two sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest
from pyinfra.api import Config, Host, Inventory, State
from pyinfra.context import ctx_host, ctx_state

from shakedown import checks
from shakedown.checks import fleet
from shakedown.checks.examination import Examination, Reading
from shakedown.runner import examine, stages
from shakedown.runner.session import Session, enter
from shakedown.runs.directory import RunDirectory
from shakedown.state.findings import Verdict
from shakedown.state.node import NodeState
from tests.states import bare, desired, with_

DRIFT = {"numa.balancing.running": "1"}


def node(number: int, changes: dict[Any, object] | None = None) -> NodeState:
    return with_(bare(number), {"interfaces.0.ipv4": [f"10.0.{number >> 8}.{number & 255}/16"], **(changes or {})})


def rack(size: int, changes: dict[Any, object]) -> Examination:
    names = [f"n{number}" for number in range(1, size + 1)]
    examination = Examination(
        dict.fromkeys(names, desired("cpu", None, tuning={"numa_balancing": False})), dict.fromkeys(names, "rack")
    )
    for number, name in enumerate(names, 1):
        examination.keep(name, Reading(node(number, changes)))
    examination.judge()
    return examination


class Changed:
    """A rack that drifted and was changed: its session, and what is called and written while it is examined again."""

    def __init__(self, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names = [f"n{number}" for number in range(1, size + 1)]
        self.state = State()
        self.state.init(Inventory((self.names, {})), Config())
        self.session = enter(Session(self.state, rack(size, DRIFT)))
        self.session.open_run()
        for name in self.names:
            self.session.run_of(name).declared.append("numa_balancing")
        self.now: dict[str, dict[Any, object]] = {}  # of nodes that are not as they should be after the change
        self.calls: Counter[str] = Counter()
        monkeypatch.setattr(examine, "read", lambda host, *_: Reading(self.state_of(host.name)))
        for module, function in ((checks, "evaluate"), (fleet, "outliers")):
            monkeypatch.setattr(module, function, self.counted(function, getattr(module, function)))
        write = RunDirectory.write

        def written(directory: RunDirectory, name: str, text: str) -> None:
            own = self.session.directory
            self.calls[name] += own is not None and directory.path == own.path  # a save of an earlier test may be late
            write(directory, name, text)

        monkeypatch.setattr(RunDirectory, "write", written)

    def state_of(self, name: str) -> NodeState:
        return node(int(name[1:]), self.now.get(name))

    def counted(self, name: str, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            self.calls[name] += 1
            return function(*arguments)

        return call

    def on_all(self, stage: Any) -> dict[str, bool]:
        def one(host: Host) -> bool:
            with ctx_state.use(self.state), ctx_host.use(host):
                return bool(stage(self.state, host))

        hosts = list(self.state.inventory)
        running = [gevent.spawn(one, host) for host in hosts]
        gevent.joinall(running, raise_error=True)
        return {host.name: greenlet.value for host, greenlet in zip(hosts, running, strict=True)}

    def notes(self) -> str:
        assert self.session.directory is not None
        return (self.session.directory.path / "events.jsonl").read_text()


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path / "runs"))
    yield tmp_path / "runs"


@pytest.mark.parametrize("size", [4, 40])
def test_a_changed_rack_is_compared_once_and_each_node_judged_once(
    size: int, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rack = Changed(size, monkeypatch)
    rack.session.saving_s = 1000.0  # as for very many nodes: none of the saves is due yet
    assert all(rack.on_all(stages._recheck).values())
    assert rack.calls == {"evaluate": size}
    assert all(f'"text":"{name}: examined again: ok' in rack.notes() for name in rack.names), "lost where it is killed"
    assert rack.session.examination.uncompared
    assert all(rack.on_all(stages._recompare).values())
    assert rack.calls == {"evaluate": size, "outliers": 1} and not rack.session.examination.uncompared
    rack.session.close()
    assert rack.calls["run.json"] <= 2 and rack.session.next_save is None
    assert RunDirectory(next(runs.glob("2*"))).load().verdict == Verdict.OK


@pytest.mark.parametrize("ended", [False, True])  # by what came between
def test_a_node_that_the_change_made_another_one_fails_beside_the_others(
    ended: bool, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rack = Changed(4, monkeypatch)
    rack.now = {"n2": {"system.kernel": "6.8.0"}}
    assert all(rack.on_all(stages._recheck).values()), "which is said when all were read"
    assert not rack.session.examination.blockers("n2")
    if ended:
        rack.session.close()
    assert rack.calls["outliers"] == ended
    assert rack.on_all(stages._recompare) == {"n1": True, "n2": False, "n3": True, "n4": True}
    assert [finding.name for finding in rack.session.examination.blockers("n2")] == ["fleet.kernel"]
    assert rack.session.run_of("n2").verdict == Verdict.FAIL


def test_a_save_that_waits_is_made_once_for_all_that_ask(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rack = Changed(16, monkeypatch)
    rack.session.saving_s = 0.0001
    for name in rack.names:
        rack.session.fail(rack.session.host(name), "of no use")
    assert not rack.calls["run.json"]
    gevent.sleep(0.1)
    assert rack.calls["run.json"] == 1
    kept = RunDirectory(next(runs.glob("2*"))).load()
    assert [node.why for node in kept.nodes] == ["of no use"] * 16


def split(size: int, values: int) -> list[Any]:
    states = {f"n{number}": node(number, {"system.bios_version": f"2.{number % values}"}) for number in range(size)}
    found = fleet.outliers(states, dict.fromkeys(states, "rack"), {})
    return [finding for finding in found if finding.name == "fleet.bios"]


@pytest.mark.parametrize("values", [2, 240])
def test_the_finding_of_a_node_of_a_split_rack_is_as_long_for_any_rack(values: int) -> None:
    """Each of them names the nodes of both sides."""
    few, many = (max(len(finding.model_dump_json()) for finding in split(size, values)) for size in (60, 240))
    assert many <= 1.1 * few


def test_values_that_all_nodes_share_name_some_of_them() -> None:
    """As of an address that an image was cloned with."""
    states = {f"n{number}": with_(bare(number), {"interfaces.0.ipv4": ["10.0.0.7/16"]}) for number in range(240)}
    found = [f for f in fleet.outliers(states, {}, {}) if f.name == "fleet.address.10.0.0.7"]
    assert len(found) == 240 and {len(finding.evidence) for finding in found} == {1000}
    assert found[0].evidence.startswith("eth0; the same address: n1 (eth0), n2 (eth0)")
    assert "n0 " not in found[0].evidence
