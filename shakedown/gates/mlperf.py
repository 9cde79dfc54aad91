"""Whether a run of MLPerf training ended as its own lines ask."""

from __future__ import annotations

import math
import statistics

from shakedown.catalogue import advice
from shakedown.common.text import counted
from shakedown.gates.model import Outcome, some
from shakedown.gates.registry import gate
from shakedown.logs.mlperf import MlperfRun
from shakedown.state.findings import Verdict


@gate
def mlperf_run(mlperf: MlperfRun, mlperf_cut: str = "") -> Outcome:
    """Of a log with MLPerf's lines: each run that began has stopped with the status success, and its accuracies and
    throughputs are numbers. The status aborted fails; one of another name is unknown, and so is a log without a begin,
    and one that is not whole and has no end.
    """
    ended = {status: f"a run stopped with the status {status}" for status in mlperf.statuses if status != "success"}
    failed = [ended.pop("aborted")] if "aborted" in ended else []
    failed += [
        f"{what} {some([value for value in values if not math.isfinite(value) or value < 0])} is no number above 0"
        for what, values in (("eval_accuracy", mlperf.accuracies), ("throughput", mlperf.throughputs))
        if not all(math.isfinite(value) and value >= 0 for value in values)
    ]
    open_ended = bool(mlperf.starts) and not mlperf.statuses
    doubtful = list(ended.values()) + ([] if mlperf.starts else ["no line says that a run began"])
    if open_ended:
        (doubtful if mlperf_cut or mlperf.damaged else failed).append("a run began, and no line says that it stopped")
    if mlperf.damaged and (open_ended or not mlperf.starts):
        doubtful.append(f"{counted(mlperf.damaged, 'line')} of MLPerf cannot be read")
    verdict = Verdict.FAIL if failed else Verdict.UNKNOWN if doubtful else Verdict.OK
    return Outcome(
        verdict=verdict,
        wanted="success",
        actual=", ".join(dict.fromkeys(mlperf.statuses)) or None,
        evidence="; ".join([*failed, *doubtful, *_seen(mlperf)]),
        remedy=None if verdict is Verdict.OK else advice("unfinished"),
    )


def _seen(mlperf: MlperfRun) -> list[str]:
    said = [f"{counted(mlperf.lines, 'line')} of MLPerf training{f', {mlperf.benchmark}' * bool(mlperf.benchmark)}"]
    if mlperf.begun_ms is not None and mlperf.stopped_ms is not None:
        said.append(f"{(mlperf.stopped_ms - mlperf.begun_ms) / 60_000:.4g} min from begin to stop")
    if mlperf.accuracies:
        said.append(f"the last of {counted(len(mlperf.accuracies), 'evaluation')} reached {mlperf.accuracies[-1]:.6g}")
    if mlperf.throughputs:
        said.append(f"mean throughput {statistics.fmean(mlperf.throughputs):.6g} samples/s")
    return said
