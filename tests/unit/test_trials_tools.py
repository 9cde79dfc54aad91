"""The field's own tools: what their output says, by the names of its columns."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from shakedown.trials import trials
from shakedown.trials.workload import tools
from shakedown.trials.workload.registry import Place

SAMPLES = Path(__file__).parents[1] / "data/trials"


def sample(name: str) -> str:
    return (SAMPLES / name).read_text("utf-8")


def test_rccl_tests_give_the_largest_message_in_place_and_every_wrong_result() -> None:
    text = sample("all_reduce_perf.txt")
    assert tools.rccl(text) == (367.51, 2)
    older = text.replace("   root ", "").replace("    -1", "")  # before `root` was a column of all collectives
    assert tools.rccl(older) == (367.51, 2)


def test_perftest_gives_the_average_in_gigabits_and_the_typical_latency() -> None:
    text = sample("ib_write_bw.txt")
    assert tools.ib_bandwidth(text) == 193.21
    assert tools.ib_bandwidth(text.replace("Gb/sec", "MB/sec")) == pytest.approx(193.21 * 8 * 1.048576 / 1000)
    moved = text.replace("BW peak[Gb/sec]    BW average[Gb/sec]", "BW average[Gb/sec]    BW peak[Gb/sec]")
    assert tools.ib_bandwidth(moved) == 194.39  # by its name, wherever it stands
    assert tools.ib_latency(sample("ib_read_lat.txt")) == 1.87


def test_transferbench_babelstream_and_rvs_are_read_by_name() -> None:
    assert tools.transferbench(sample("transferbench_p2p.txt")) == {
        "p2p.unidirectional": 48.65,
        "p2p.bidirectional": 45.92,
    }
    assert tools.transferbench("Average bandwidth (GPU Timed):   33.512 GB/s") == {"a2a.average": 33.512}
    rates, wrong = tools.babelstream(sample("babelstream.txt"))
    assert (rates["Triad"], wrong) == (pytest.approx(3885.301686), 0)
    assert tools.babelstream("Validation failed on sum. Error 3.5e-06\n" + sample("babelstream.txt"))[1] == 1
    first, second = tools.rvs(sample("rvs_gst.txt"))
    assert (first.value, first.target, first.met) == (1687.129, 1215.0, True)
    assert (second.gpu, second.met) == ("51499", False)


@pytest.mark.parametrize("text", ["", "no such device", "# size count\n1 2 3", "Function\nCopy x y z w"])
def test_what_is_no_such_output_gives_no_figure(text: str) -> None:
    assert math.isnan(tools.rccl(text)[0]) and math.isnan(tools.ib_bandwidth(text))
    assert math.isnan(tools.ib_latency(text))
    assert tools.transferbench(text) == tools.babelstream(text)[0] == {} and tools.rvs(text) == []


def test_a_tool_that_is_installed_is_run_and_one_that_fails_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program = tmp_path / "all_reduce_perf"
    program.write_text(f'#!/bin/sh\n[ "$8" = 4 ] && cat {SAMPLES / "all_reduce_perf.txt"}\n')
    program.chmod(0o755)
    trial = trials()["rccl_tests"]
    (found,) = trial.function(Place("node", None, gpus=4))
    assert (found.figure, found.value, found.wrong) == ("all_reduce.busbw", 367.51, 2)
    with pytest.raises(RuntimeError, match="exit code 1"):
        list(trial.function(Place("node", None, gpus=8)))
    program.unlink()
    assert list(trial.function(Place("node", None, gpus=4))) == []
