"""The field's own tools: what their output says, by the names of its columns."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from shakedown.trials.workload import tools
from shakedown.trials.workload.measures import installed
from shakedown.trials.workload.registry import Place, reading_of, trials

SAMPLES = Path(__file__).parents[1] / "data/trials"


def sample(name: str) -> str:
    return (SAMPLES / name).read_text("utf-8")


def test_rccl_tests_give_the_largest_message_in_place_and_every_wrong_result() -> None:
    text = sample("all_reduce_perf.txt")
    assert tools.rccl(text) == (367.51, 2)
    older = text.replace("   root ", "").replace("    -1", "")  # before `root` was a column of all collectives
    assert tools.rccl(older) == (367.51, 2)
    table = text.splitlines()
    (header,) = [number for number, line in enumerate(table) if "redop" in line]
    for words in ("size", "size limit"):
        assert tools.rccl("\n".join([*table[: header + 1], words, *table[header + 1 :]])) == (367.51, 2), "no header"


def test_perftest_gives_the_average_in_gigabits_and_the_typical_latency() -> None:
    text = sample("ib_write_bw.txt")
    assert tools.ib_bandwidth(text) == 193.21
    assert tools.ib_bandwidth(text.replace("Gb/sec", "MB/sec")) == pytest.approx(193.21 * 8 * 1.048576 / 1000)
    moved = text.replace("BW peak[Gb/sec]    BW average[Gb/sec]", "BW average[Gb/sec]    BW peak[Gb/sec]")
    assert tools.ib_bandwidth(moved) == 194.39  # by its name, wherever it stands
    assert tools.ib_latency(sample("ib_read_lat.txt")) == 1.87
    assert tools.ib_bandwidth(sample("ib_write_bw_soft_roce.txt")) == 0.0109
    assert tools.ib_latency(sample("ib_read_lat_soft_roce.txt")) == 16687.96


def test_transferbench_babelstream_and_rvs_are_read_by_name() -> None:
    assert tools.transferbench(sample("transferbench_p2p.txt")) == {
        "p2p.unidirectional": 48.65,
        "p2p.bidirectional": 45.92,
    }
    assert tools.transferbench("Average bandwidth (GPU Timed):   33.512 GB/s") == {"a2a.average": 33.512}
    rates, wrong = tools.babelstream(sample("babelstream.txt"))
    assert (rates["Triad"], wrong) == (pytest.approx(3885.301686), 0)
    assert tools.babelstream("Validation failed on sum. Error 3.5e-06\n" + sample("babelstream.txt"))[1] == 1


def test_rvs_says_of_each_gpu_what_it_did_and_whether_that_was_enough() -> None:
    assert tools.gst(sample("rvs_gst.txt")) == [
        ("gst-1215Tflops-4K4K8K-rand-fp8", "28851", 1687.129, ""),
        ("gst-1215Tflops-4K4K8K-rand-fp8", "51499", 1100.0, "1215 TFLOPS"),
    ]
    action = "iet-stress-1400W-true"
    assert tools.iet(sample("rvs_iet.txt")) == [
        (action, "42583", 1399.0, ""),
        (action, "1590", 1102.0, "the target of its power"),
    ]
    babel = {each.action: each.value for each in tools.babel(sample("rvs_babel.txt"))}
    assert babel == {"babel-double-825MiB.Copy": 6150.00025, "babel-double-825MiB.Triad": 5950.0005}, "no best of many"
    assert tools.pebb(sample("rvs_pebb.txt")) == [
        ("pcie_h2d_bandwidth.near", "42583", 57.6, ""),
        ("pcie_h2d_bandwidth.far", "42583", 54.0, ""),
        ("pcie_h2d_bandwidth.far", "1590", 55.2, ""),
        ("pcie_h2d_bandwidth.near", "1590", 57.7, ""),
    ]
    assert tools.pbqt(sample("rvs_pbqt.txt")) == [
        ("xgmi_d2d_unidir_bandwidth", "42583", 61.37, ""),
        ("xgmi_d2d_unidir_bandwidth", "1590", 18.4, "peer access to GPU 57875"),
    ]


def test_rvs_takes_the_configuration_of_the_gpu_and_its_numbers_are_ours(tmp_path: Path) -> None:
    root, folder = str(tmp_path), tmp_path / "opt/rocm/extras-10/share/rocm-validation-suite/conf"
    for name in ("gst_single.conf", "MI355X/gst_single.conf", "MI355X/iet_stress.conf"):
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).touch()
    assert tools.configuration("gst", "mi355x", root) == folder / "MI355X/gst_single.conf"
    assert tools.configuration("gst", "mi300x", root) == folder / "gst_single.conf"
    assert tools.configuration("iet", "mi355x", root) == folder / "MI355X/iet_stress.conf"
    assert tools.configuration("iet", "mi300x", root) is None
    assert tools.configuration("gst", "mi300x", f"{root}/nothing") is None
    for node, number in (("0", "0"), ("2", "42583"), ("10", "1590")):
        (tmp_path / "nodes" / node).mkdir(parents=True)
        (tmp_path / "nodes" / node / "gpu_id").write_text(f"{number}\n")
    assert tools.gpu_numbers(tmp_path / "nodes") == {"42583": "gpu0", "1590": "gpu1"}


@pytest.mark.parametrize("text", ["", "no such device", "# size count\n1 2 3", "Function\nCopy x y z w"])
def test_what_is_no_such_output_gives_no_figure(text: str) -> None:
    assert math.isnan(tools.rccl(text)[0]) and math.isnan(tools.ib_bandwidth(text))
    assert math.isnan(tools.ib_latency(text))
    assert tools.transferbench(text) == tools.babelstream(text)[0] == {}
    assert [read(text) for read in tools.MODULES.values()] == [[]] * 5


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


def test_babelstream_and_rvs_measure_every_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "hip-stream").write_text(
        f'#!/bin/sh\nsed "s/^Triad  .*/Triad 1$6.0 0 0 0/" {SAMPLES / "babelstream.txt"}\n'
    )
    (tmp_path / "rvs").write_text(f'#!/bin/sh\n[ "$1" = -c ] && cat {SAMPLES / "rvs_gst.txt"}\n')
    for name in ("hip-stream", "rvs"):
        (tmp_path / name).chmod(0o755)
    conf = tmp_path / "rocm/share/rocm-validation-suite/conf/gst_single.conf"
    conf.parent.mkdir(parents=True)
    conf.touch()
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "rocm"))
    found = list(trials()["babelstream"].function(Place("node", None, gpus=3)))
    triad = {each.part: each.value for each in found if each.figure == "Triad"}
    assert triad == {"gpu0": 10.0 / 1000, "gpu1": 11.0 / 1000, "gpu2": 12.0 / 1000}
    first, second = trials()["rvs_gst"].function(Place("node", None, gpus=2, model="mi300x"))
    assert (first.part, first.missed, second.part, second.missed) == ("gpu28851", False, "gpu51499", True)


@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
def test_the_data_set_is_read_and_left_as_it_is(tmp_path: Path) -> None:
    """A real fio. What stands in its way is said, and nothing is ever created or changed."""
    trial, data = trials()["dataset_read"], tmp_path / "data"
    (data / "part").mkdir(parents=True)
    for name, size in {"part/a.bin": 24 << 20, "b.bin": 20 << 20, "small.idx": 100}.items():
        (data / name).write_bytes(os.urandom(size))
    (data / "link.bin").symlink_to(data / "b.bin")

    def files() -> dict[str, tuple[int, int, str]]:
        found = [path for path in data.rglob("*") if path.is_file()]
        return {
            str(p): (p.stat().st_size, p.stat().st_mtime_ns, hashlib.sha256(p.read_bytes()).hexdigest()) for p in found
        }

    before = files()
    assert installed.largest_files(str(data)) == [str(data / "part/a.bin"), str(data / "b.bin")]
    shorter = tuple("--runtime=1" if word.startswith("--runtime") else word for word in installed.READ)
    with mock.patch.object(installed, "READ", shorter):
        bandwidth, latency = trial.function(Place("node", None, folders=[str(data)]))
    assert bandwidth.figure == "bandwidth" and 0.001 < bandwidth.value < 100
    assert latency.figure == "latency" and 1 < latency.value < 10**8
    assert files() == before
    for folders, words in (([], "no data set"), ([str(data / "none")], "no file"), ([str(tmp_path / "x")], "no file")):
        (nothing,) = trial.function(Place("node", None, folders=folders))
        assert words in nothing.note and reading_of(nothing, "dataset_read", "node", 1)["state"] == "absent"
    gone = subprocess.run(["fio", "--name=x", *shorter, f"--filename={tmp_path}/new"], capture_output=True, check=False)
    assert gone.returncode != 0 and not (tmp_path / "new").exists(), "a file that is not there is not made"


def test_an_error_of_fio_is_no_figure() -> None:
    document = {"jobs": [{"error": 5, "read": {"bw_bytes": 0}}]}
    assert all(math.isnan(value) for value in tools.fio(f"fio: io_u error\n{json.dumps(document)}"))


def test_where_there_is_no_torch_the_trials_that_need_none_are_there() -> None:
    code = """
import sys
sys.modules["torch"] = None
from shakedown.trials.workload import programs, registry, tools
print(*(name for name, trial in registry.trials().items() if not trial.needs_torch))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert {"perftest", "dataset_read"} <= {*done.stdout.split()}, done.stderr
