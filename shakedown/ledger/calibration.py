"""Several smoke runs one after the other, and the baseline that they make with the earlier ones."""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType

from shakedown.common.frozen import Frozen
from shakedown.common.runs_folder import runs_folder
from shakedown.common.text import printable
from shakedown.gates.baselines.judge import baseline_of
from shakedown.gates.baselines.model import Baseline
from shakedown.ledger import LedgerError
from shakedown.ledger.compared import Wanted, past_of, states_of
from shakedown.ledger.history import Asked, history
from shakedown.ledger.store import open_ledger
from shakedown.logs.metrics import METRICS
from shakedown.runs.directory import RunDirectory, RunRecord
from shakedown.state.findings import Verdict

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PASSES = (Verdict.OK.exit_code, Verdict.DRIFT.exit_code)  # what is left of drift says nothing of the training


class Row(Frozen):
    """One metric of one job: what earlier runs, these among them, say of the next."""

    job: str
    metric: str
    unit: str
    epoch: str
    baseline: Baseline


class CalibrationError(Exception):
    """Why there is no baseline, with what the run came to: the exit code."""

    def __init__(self, why: str, code: int) -> None:
        super().__init__(why)
        self.code = code


def usual_seconds(inventory: str) -> float | None:
    """How long the newest finished run over the same inventory took, as the ledger has it; None: nobody knows."""
    try:
        rows = history(open_ledger(), Asked(limit=100)).runs
    except LedgerError:  # there is none yet
        return None
    took = [
        row.finished_at - row.at
        for row in rows
        if row.finished_at and row.kind == "run" and row.inventory == inventory and row.verdict == Verdict.OK
    ]
    return took[0].total_seconds() if took else None


def in_a_row(
    command: Callable[[Path], Sequence[str]], runs: int, usual_s: float | None, say: Callable[[str], None]
) -> list[RunRecord]:
    """Run the command so many times, in a process group each, with a file for its run's record. `say` hears of each
    beginning and the time left. Raises CalibrationError at the first run that is no pass: a baseline is of passes."""
    done: list[RunRecord] = []
    took: list[float] = []
    for number in range(1, runs + 1):
        left = (sorted(took)[len(took) // 2] if took else usual_s or 0.0) * (runs - number + 1)
        say(f"calibrate: run {number} of {runs}{_until(left)}")
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "run.json"
            code, stopped_by = _run(command(file))
            record: RunRecord | None = None
            with suppress(OSError, ValueError):
                record = RunRecord.model_validate_json(file.read_bytes())
        took.append(time.monotonic() - began)
        kept = f"; {len(done)} of {runs} runs are in the ledger, and count" if done else ""
        if stopped_by:
            raise CalibrationError(f"interrupted in run {number} of {runs}{kept}", 128 + stopped_by)
        where = f": shakedown report {record.run_id}" if record else ""
        if code not in _PASSES or record is None:
            why = f"run {number} of {runs} did not pass (exit code {code}), and a baseline is of passes{where}{kept}"
            raise CalibrationError(why, code or Verdict.UNKNOWN.exit_code)
        if record.not_in_ledger:
            raise CalibrationError(printable(record.not_in_ledger, 400), Verdict.UNKNOWN.exit_code)
        done.append(record)
    return done


def _until(left_s: float) -> str:
    if not left_s:
        return ": no earlier run shows how long one takes"
    end = datetime.now().astimezone() + timedelta(seconds=left_s)
    length = f"{left_s / 60:.0f} minutes" if left_s >= 90 else f"{left_s:.0f} s"
    return f": about {length} to go, until {end:%H:%M}"


def _run(argv: Sequence[str]) -> tuple[int, int]:
    """Run a command in its own process group; return its exit code, and the signal passed on, if any."""
    seen: list[int] = []
    children: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        seen.append(number)
        for child in children:
            child.send_signal(number)

    heard = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, pass_on) for number in heard}
    try:
        out = sys.stderr.fileno()
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, process_group=0) as child:
            children.append(child)
            for number in tuple(seen):  # signals that came before there was a child
                child.send_signal(number)
            code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code, seen[0] if seen else 0


def baselines_of(record: RunRecord) -> list[Row]:
    """Return the baselines of a run's figures after it. Raises CalibrationError for an unreadable ledger."""
    states, unread = states_of(RunDirectory(runs_folder() / record.run_id), record)
    if unread:
        raise CalibrationError(unread[0], Verdict.UNKNOWN.exit_code)
    rows = []
    for job in record.jobs:
        if job.trials or job.plan is None:
            continue
        past = past_of(job, states, None, Wanted(judge=False))
        if past.problem:
            raise CalibrationError(past.problem, Verdict.UNKNOWN.exit_code)
        for name, metric in METRICS.items():
            if past.of_metric(name):
                found = baseline_of(past, name, metric.direction)
                rows.append(Row(job=job.name, metric=name, unit=metric.unit, epoch=past.epoch, baseline=found))
    return rows
