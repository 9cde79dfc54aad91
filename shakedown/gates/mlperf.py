"""Whether a run of MLPerf training ended as its own lines ask."""

import math
import statistics

from shakedown.catalogue import advice
from shakedown.common.text import counted, decimal
from shakedown.gates.model import Outcome, some
from shakedown.gates.node_log import NodeLog
from shakedown.gates.registry import gate
from shakedown.logs.mlperf import MlperfRun
from shakedown.state.findings import Verdict


@gate
def mlperf_run(mlperf: NodeLog) -> Outcome | None:
    """Of a log with MLPerf's lines: each run that began has stopped with the status success, and its accuracies and
    throughputs are numbers. The status aborted fails; one of another name is unknown, and so is a log without a begin,
    and one that is not whole and has no end.
    """
    run = mlperf.mlperf
    if run is None:
        return None
    ended = {status: f"a run stopped with the status {status}" for status in run.statuses if status != "success"}
    failed = [ended.pop("aborted")] if "aborted" in ended else []
    failed += [
        f"{what} {some(wrong)} is not a number of at least 0"
        for what, values in (("eval_accuracy", run.accuracies), ("throughput", run.throughputs))
        if (wrong := [value for value in values if not (math.isfinite(value) and value >= 0)])
    ]
    open_ended = bool(run.starts) and not run.statuses
    doubtful = list(ended.values()) + ([] if run.starts else ["no line says that a run began"])
    if open_ended:
        (doubtful if mlperf.incomplete or run.damaged else failed).append(
            "a run began, and no line says that it stopped"
        )
    if run.damaged and (open_ended or not run.starts):
        doubtful.append(f"{counted(run.damaged, 'line')} of MLPerf cannot be read")
    verdict = Verdict.FAIL if failed else Verdict.UNKNOWN if doubtful else Verdict.OK
    return Outcome(
        verdict=verdict,
        wanted="success",
        actual=", ".join(dict.fromkeys(run.statuses)) or None,
        evidence="; ".join([*failed, *doubtful, *_seen(run)]),
        remedy=advice("unfinished"),
    )


def _seen(run: MlperfRun) -> list[str]:
    texts = [f"{counted(run.lines, 'line')} of MLPerf training{f', {run.benchmark}' * bool(run.benchmark)}"]
    if run.begun_ms is not None and run.stopped_ms is not None:
        texts.append(f"{decimal((run.stopped_ms - run.begun_ms) / 60_000, 4)} min from begin to stop")
    if run.accuracies:
        texts.append(f"the last of {counted(len(run.accuracies), 'evaluation')} reached {decimal(run.accuracies[-1])}")
    if run.throughputs:
        texts.append(f"mean throughput {decimal(statistics.fmean(run.throughputs))} samples/s")
    return texts
