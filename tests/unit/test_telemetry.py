"""The samples and the kernel log of a node as they are read, summed up, judged and shown."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest
from rich.console import Console

from shakedown.catalogue import advice
from shakedown.evidence.results import NodeClock
from shakedown.evidence.telemetry import samples
from shakedown.evidence.telemetry.kernel import KernelWindow
from shakedown.evidence.telemetry.kernel import read as read_kernel
from shakedown.evidence.telemetry.samples import Series
from shakedown.evidence.telemetry.summary import NodeTelemetry, Spread, channels, each_device, summary
from shakedown.gates.nodes import no_kernel_fault, no_throttling
from shakedown.gates.observed import NodeWatch
from shakedown.report.outcomes import constrained
from shakedown.report.telemetry import lines, table
from shakedown.state.findings import Verdict
from tests.gates import judged

A, B = "0000:05:00.0", "0000:25:00.0"
NAMES = [f"gpu/{A}/power_w", f"gpu/{B}/power_w", f"gpu/{A}/throttle_thermal_s", f"gpu/{B}/throttle_thermal_s"]
BEGIN = {"kind": "begin", "schema": 1, "t": 100, "wall": 5000, "boot_id": "x", "interval_s": 2, "cpus": 4}
END = {"kind": "end", "t": 111, "why": "over", "samples": 6, "thinned": 0, "interval_s": 2, "cpu_s": 0.01}


def told(*documents: Any) -> Series:
    texts = (each if isinstance(each, str) else json.dumps(each) for each in documents)
    return samples.read([f"{text}\n".encode() for text in texts])


def series(*more: Any, throttled: float = 1.0) -> Series:
    """Ten seconds, a sample every two; B is throttled from second 4 on."""
    rows = [
        {"t": 100 + 2 * n, "v": [500 + n, 700, 0, max(0, n - 2) * 2 * throttled if n < 6 else None]} for n in range(6)
    ]
    return told({**BEGIN, "channels": NAMES}, *rows, *more, END)


def test_each_device_is_seen_in_a_channels_spread() -> None:
    found = summary(series(), None, None)
    power = found.channels["gpu/*/power_w"]
    assert (power.min, power.max, power.at_min, power.at_max) == (500, 700, A, B)
    assert found.gpus == 2 and found.throttled == {B: {"thermal": 6.0}}


def test_only_what_lies_in_the_steady_iterations_counts() -> None:
    clock = NodeClock(offset_s=1000, uncertainty_s=0.1)
    found = summary(series(), clock, (1105, 1107))
    assert found.window == "steady iterations" and found.seconds == 2
    assert found.throttled == {B: {"thermal": 2.0}}, "the part of two intervals"
    assert found.channels["gpu/*/power_w"].min == 503
    assert summary(series(), clock, (1100, 1103)).throttled == {}


def test_a_rate_is_that_between_two_samples_and_a_reset_says_nothing() -> None:
    rows = [{"t": when, "v": [value]} for when, value in ((0, 0), (2, 1e9), (4, 5), (6, 1e9 + 5))]
    found = told({**BEGIN, "channels": ["rdma/mlx5_0/tx_bytes"]}, *rows, END)
    assert [value for _, value in each_device(found, "rdma/*/tx_bytes")["mlx5_0"]] == [4.0, 4.0]


def test_what_grew_in_no_time_at_all_has_no_rate() -> None:
    rows = [{"t": 0, "v": [0]}, {"t": 5e-324, "v": [1 << 63]}]
    found = told({**BEGIN, "channels": ["rdma/mlx5_0/tx_bytes"]}, *rows, END)
    assert summary(found, None, None).samples == 1 and "not after that of the sample before" in found.incomplete


def test_every_channel_that_the_sampler_writes_is_known() -> None:
    from shakedown.node.telemetry import gpus, machine
    from shakedown.node.tree import Tree

    assert set(machine.Machine(Tree("/nothing")).names) <= set(channels())
    of_gpus = [*gpus._HWMON, *gpus._FILES, *gpus._RAS, *(f"throttle_{reason}_s" for reason in gpus.REASONS)]
    assert {f"gpu/*/{name}" for name in of_gpus} == {name for name in channels() if name.startswith("gpu/")}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"t": 101, "v": [1, 2, 3]}, "a value for each of the 4 channels"),
        ({"t": 99, "v": [1, 2, 3, 4]}, "not after that of the sample before"),
        ('{"t": 120, "v": [1, 2, 3, NaN]}', "no number of 64 bits"),
        ('{"t": 120, "v": [1, 2, 3, 1e999]}', "no number of 64 bits"),
        ({"t": 120, "v": [1, 2, 3, "4"]}, "no number of 64 bits"),
        ({"t": 120, "v": [1, 2, 3, True]}, "no number of 64 bits"),
        ({"t": 120, "v": [1, 2, 3, 4], "x": 1}, "a sample is a time"),
        ({"kind": "risen", "t": 1, "counter": "x", "from": "much", "to": 2}, "from"),
        ({"kind": "other"}, "neither a sample nor a known kind"),
        ("[" * 5000, ""),
        ("\x00\x1b[31m", ""),
    ],
)
def test_a_line_that_is_none_is_told_and_costs_itself_only(document: Any, why: str) -> None:
    found = series(document)
    assert found.incomplete.startswith("1 line of it cannot be used (line 8") and why in found.incomplete
    assert "\x1b" not in found.incomplete
    assert len(found.times) == 6 and found.end is not None


def test_a_file_without_its_first_line_or_its_end_says_so() -> None:
    assert "first line is missing" in told(END).incomplete
    assert told({**BEGIN, "channels": []}).incomplete == "the end was not written"
    twice = told({**BEGIN, "channels": ["a", "a"]})
    assert twice.begin is None and "a channel is listed twice" in twice.incomplete


def node(found: Series, window: tuple[float, float] | None = (100, 110)) -> NodeTelemetry:
    return summary(found, NodeClock(offset_s=0, uncertainty_s=0), window)


def test_throttling_fails_for_the_reasons_that_are_asked_for() -> None:
    hot = judged(
        no_throttling(
            NodeWatch(telemetry={"a": node(series(throttled=0)), "b": node(series())}, not_throttled=["thermal"])
        )
    )
    assert hot.verdict is Verdict.FAIL and f"b {B}: 6 s thermal" in hot.evidence
    assert (
        judged(no_throttling(NodeWatch(telemetry={"a": node(series(throttled=0))}, not_throttled=["thermal"]))).verdict
        is Verdict.OK
    )


@pytest.mark.parametrize(
    "nodes",
    [
        {"a": None},
        {"a": node(told({**BEGIN, "channels": []}, END))},
        {"a": node(series(throttled=0), None)},
        {"a": node(told({**BEGIN, "channels": NAMES}, {"t": 1, "v": [1, 2, None, None]}, END))},
        {},
    ],
    ids=["no samples", "no GPU", "no window", "GPUs that do not tell", "no node"],
)
def test_throttling_that_nobody_saw_is_unknown(nodes: dict[str, NodeTelemetry | None]) -> None:
    assert judged(no_throttling(NodeWatch(telemetry=nodes, not_throttled=["thermal"]))).verdict is Verdict.UNKNOWN


KERNEL = (
    "# begin monotonic=10.000000 wall=5000.000000 source=kmsg\n"
    "[   10.100000] usb 1-1: new device\n"
    "[   10.200000] amdgpu 0000:05:00.0: amdgpu: GPU reset begin!\n"
    "# end monotonic=12.000000\n"
)


def kernel(text: str) -> KernelWindow:
    return read_kernel([text.encode()])


def test_a_fault_in_the_kernel_log_is_named_with_its_line() -> None:
    gate = judged(no_kernel_fault(NodeWatch(kernel={"a": kernel(KERNEL)})))
    assert gate.verdict is Verdict.FAIL and "a: gpu_reset (line 3)" in gate.evidence and gate.remedy
    fine = {"a": kernel(KERNEL.replace("GPU reset begin!", "fine"))}
    assert judged(no_kernel_fault(NodeWatch(kernel=fine, kernel_wanted=True))).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("window", "why"),
    [
        (None, "kernel_log_lost"),
        (
            kernel(
                "# begin monotonic=1.0 wall=1.0 source=journal\n# unreadable not permitted: x\n# end monotonic=2.0\n"
            ),
            "kernel_log",
        ),
        (kernel("# begin monotonic=1.0 wall=1.0 source=kmsg\n"), "kernel_log"),
        (kernel("# begin monotonic=1.0 wall=1.0 source=kmsg\n# lost 3 records\n# end monotonic=2.0\n"), "kernel_log"),
        (kernel(""), "kernel_log"),
    ],
    ids=["none", "unreadable", "cut", "overwritten", "empty"],
)
def test_a_kernel_log_that_was_not_seen_is_unknown_where_it_is_asked_for(window: KernelWindow | None, why: str) -> None:
    gate = judged(no_kernel_fault(NodeWatch(kernel={"a": window}, kernel_wanted=True)))
    assert (gate.verdict, gate.remedy) == (Verdict.UNKNOWN, advice(why))
    told = judged(no_kernel_fault(NodeWatch(kernel={"a": window})))
    assert told.verdict is Verdict.OK and "not seen: a" in told.evidence


def shown(nodes: dict[str, NodeTelemetry]) -> str:
    console = Console(width=500, record=True)
    console.print(table(nodes))
    return console.export_text()


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 200])
def test_no_range_is_broken_whatever_the_width(columns: int) -> None:
    names = [channel.name for channel in channels().values() if channel.column]
    spread = Spread(min=12345.6, median=23456.7, max=34567.8)
    nodes = {
        f"node0{n}.rack7": NodeTelemetry(
            window="steady iterations", samples=5, seconds=9, channels=dict.fromkeys(names, spread)
        )
        for n in range(8)
    }
    console = Console(file=io.StringIO(), width=columns)
    console.print(table(nodes))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert len(re.findall(r"\(\S+\.\.\S+\)", text)) == text.count("(") == len(names) * len(nodes)
    assert max(map(len, text.splitlines())) <= columns
    assert text.startswith("telemetry of steady")
    console = Console(file=io.StringIO(), width=1000)  # as of a pipe
    console.print(constrained(table(nodes)))
    assert max(map(len, console.file.getvalue().splitlines())) <= 100  # type: ignore[attr-defined]


def test_the_table_names_who_was_throttled_and_folds_many_nodes() -> None:
    text = shown({"a": node(series(throttled=0)), "[red]b": node(series())})
    assert "602.5 (500..700)" in text and f"{B} throttled 6 s by thermal" in text and "[red]b" in text
    many = {f"node{n:03}": node(series(throttled=float(n == 77))) for n in range(512)}
    rows = shown(many).splitlines()
    assert len(rows) == 3 and "all 512 nodes" in rows[1] and "node077" in rows[2]
    assert table({"a": node(told({**BEGIN, "channels": []}, END))}) is None


def test_what_could_not_be_sampled_is_told_once_for_all_nodes() -> None:
    unread = {"kind": "unreadable", "t": 1, "why": "missing: libamd_smi.so", "channels": ["gpu/x/busy_pct"]}
    found = node(told({**BEGIN, "channels": ["gpu/x/busy_pct"]}, unread, {"t": 1, "v": [None]}))
    (first, second) = lines({f"n{number}": found for number in range(20)})
    assert first.startswith("not sampled on n0, n1") and "and 12 more: gpu/*/busy_pct: missing: libamd_smi.so" in first
    assert second.endswith("samples: the end was not written")
