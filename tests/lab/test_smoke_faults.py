"""One job over several nodes, each with its own interface name: it ends well, or all of it ends soon and says why.

What the whole deploy makes of such ends is in test_faults.py."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.conftest import RackMaker
from tests.lab.jobs import SECRET, Run, diagnosed, plan, rank_pid
from tests.lab.namespaces import Node, Rack
from tests.lab.node_spec import NodeSpec
from tests.lab.product import SMALL_VENV, WITHOUT_TORCH


@pytest.fixture
def lab(rack: RackMaker) -> Rack:
    return rack(2, NodeSpec(user="ops", files=WITHOUT_TORCH))


@pytest.fixture
def runs(rack: RackMaker) -> Iterator[list[Run]]:
    """Ends what a failing test leaves running."""
    started: list[Run] = []
    yield started
    for run in started:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()


def start(
    runs: list[Run],
    lab: Rack,
    folder: Path,
    *options: str,
    iterations: int = 100_000,
    user: str | None = None,
    venv: str = SMALL_VENV,
    **limits: float,
) -> Run:
    runs.append(Run(lab, folder, plan(lab, folder.name, iterations, **limits, venv=venv), *options, user=user))
    return runs[-1]


def clean(node: Node) -> None:
    """Nothing of the run is left on the node, and its cleanup has run once."""
    assert node.processes() == []
    assert node.exec("ls -A /root/.cache/shakedown/runs").stdout == ""
    assert node.read("/root/cleaned") == "cleaned\n"


def test_a_frozen_rank_is_found_by_its_silence(lab: Rack, runs: list[Run], tmp_path: Path) -> None:
    run = start(runs, lab, tmp_path / "frozen", stall_s=4, venv=sys.prefix)
    run.until_it_trains()
    os.kill(rank_pid(lab["node2"]), signal.SIGSTOP)
    result = run.end()
    assert result.first_failure is not None
    assert (result.first_failure.node, result.first_failure.kind) == ("node2", "stall")
    assert diagnosed(result, lab, run.folder) == ("likely", "not running", ("node2",))
    assert SECRET not in run.output
    for node in result.nodes:
        files = {path.name for path in node.logs}
        assert "node.json" in files and any(name.startswith("process-") for name in files), files
    flights = [path for path in result.nodes[0].logs if path.name.startswith("flight-")]
    assert flights and b"all_reduce" in flights[0].read_bytes(), "who waits says in which collective"
    for node in lab.nodes:
        clean(node)


def test_a_node_that_does_not_answer_stops_the_others_and_ends_its_own_part(
    lab: Rack, runs: list[Run], tmp_path: Path
) -> None:
    run = start(runs, lab, tmp_path / "cut", unreachable_s=10)
    run.until_it_trains()
    lab["node2"].freeze()
    result = run.end()
    assert run.process.returncode == 1
    assert result.first_failure is not None
    assert (result.first_failure.node, result.first_failure.kind) == ("node2", "unreachable")
    assert diagnosed(result, lab, run.folder)[1:] == ("unreachable", ("node2",))
    assert any("not cleaned up" in note for note in result.nodes[1].notes)
    clean(lab["node1"])
    deadline = time.monotonic() + 40  # the lease, and the end of what runs
    while lab["node2"].processes():
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert lab["node2"].read("/root/cleaned") == "cleaned\n"


def test_a_node_that_reboots_is_named_and_not_who_notices(lab: Rack, runs: list[Run], tmp_path: Path) -> None:
    """Its neighbours' connections are reset as soon as it is back, long before it counts as unreachable."""
    run = start(runs, lab, tmp_path / "rebooted")
    run.until_it_trains()
    lab["node2"].down()
    lab["node2"].up()
    result = run.end()
    assert run.process.returncode == 1
    assert result.first_failure is not None
    assert (result.first_failure.node, result.first_failure.kind) == ("node2", "rebooted"), result.failures
    assert diagnosed(result, lab, run.folder) == ("certain", "rebooted", ("node2",))
    assert result.nodes[1].logs[0].read_text(), "what it had said before is kept"
    for node in lab.nodes:
        clean(node)


def test_a_second_job_on_a_node_says_whose_it_is_and_stops(lab: Rack, runs: list[Run], tmp_path: Path) -> None:
    first = start(runs, lab, tmp_path / "first")
    first.until_it_trains()
    for user in ("root", "ops"):
        second = start(runs, lab, tmp_path / f"second-{user}", user=user)
        result = second.end()
        assert second.process.returncode == 1
        assert result.outcome == "not started"
        assert result.first_failure is not None
        assert result.first_failure.kind == "busy"
        assert "run first of user root holds this node" in result.first_failure.text
        assert first.process.poll() is None
    first.process.send_signal(signal.SIGINT)
    assert first.end(timeout=30).outcome == "interrupted"
    for node in lab.nodes:
        clean(node)


def test_a_node_without_room_says_so_and_no_other_starts(lab: Rack, runs: list[Run], tmp_path: Path) -> None:
    lab["node2"].exec("mkdir -p /root/.cache && mount -t tmpfs -o size=16k none /root/.cache")
    run = start(runs, lab, tmp_path / "full")
    result = run.end()
    assert run.process.returncode == 1
    assert result.outcome == "not started"
    assert result.first_failure is not None
    assert (result.first_failure.node, result.first_failure.kind) == ("node2", "unusable")
    assert "No space left on device" in result.first_failure.text
    assert "iteration" not in run.output
    assert not any(node.processes() for node in lab.nodes)
