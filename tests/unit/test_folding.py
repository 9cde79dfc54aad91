"""pyinfra's lines over many hosts: counts while all goes well, and the hosts that failed by their names."""

import os
from pathlib import Path

from tests import forks

PROJECT = Path(__file__).resolve().parents[2]

RUNS = """
import sys
from shakedown.runner import engine
from shakedown.runner.progress import progress
from shakedown.runner.pyinfra.invocation import invocation
from pyinfra import logger
from pyinfra.api.operation import add_op, operation
from pyinfra.api.operations import run_ops
from pyinfra.api.state import StateStage
from pyinfra.context import host
from pyinfra.operations import python

@operation(is_idempotent=False)
def numa(bad):
    yield from [] if host.name == "node64" else ["true"]
    if host.name in bad:
        raise ValueError("the disk of " + host.name + " is full")

@operation(is_idempotent=False)
def job():
    yield from ()

def judge(state, host):
    host.log_styled("smoke run: did not hold: loss, exit_codes, ended_well", fg="red", log_func=logger.error)
    return False

engine.show_pyinfra_log(1)
invocation.verbose = sys.argv[2] == "-v"
state = engine.load(sys.argv[1])
with engine.connected(state):
    bad = ("node07", "node09") if sys.argv[2] == "bad" else ()
    logger.warning("Failed to load host keys from /x/known_hosts: [Errno 2] No such file or directory")
    add_op(state, numa, bad=bad, name="numa_balancing: 0")
    add_op(state, job, name="Smoke run")
    add_op(state, python.call, name="Judge the run", function=judge)
    state.set_stage(StateStage.Execute)
    try:
        run_ops(state)
    finally:
        if progress(state).folding:
            progress(state).folding.show()
"""


def lines(tmp_path: Path, how: str) -> list[str]:
    names = [(f"@fake/node{n:02d}", {"fake_delay": 0, "fake_delay_jitter": 0}) for n in range(1, 65)]
    (tmp_path / "site.py").write_text(f"site = ({names!r}, {{}})\n")
    (tmp_path / "drive.py").write_text(RUNS.replace('"node', '"@fake/node'))
    _code, _out, err = forks.run([str(tmp_path / "drive.py"), str(tmp_path / "site.py"), how], PROJECT, os.environ)
    return [line.strip() for line in err.splitlines() if line.strip()]


def test_what_goes_well_is_a_line_for_each_operation(tmp_path: Path) -> None:
    connected, changed, job, *judged = lines(tmp_path, "well")
    assert connected == "64 connected", "that no host is known yet is no error"
    assert changed == "numa_balancing: 0: 63 changed, 1 unchanged"
    assert job == "Smoke run: ended on 64", "which is no success yet"
    some = "@fake/node01, @fake/node02, @fake/node03, @fake/node04 and 60 more"
    assert " ".join(judged[:2]) == f"{some}: smoke run: did not hold: loss, exit_codes, ended_well"
    assert max(map(len, judged[:2])) <= 96


def test_hosts_that_fail_are_named_with_what_they_have_in_common(tmp_path: Path) -> None:
    shown = lines(tmp_path, "bad")
    bad = "@fake/node07, @fake/node09"
    assert shown[1:3] == [
        f"numa_balancing: 0: 61 changed, 1 unchanged, 2 failed: {bad}",
        f"{bad}: ValueError: the disk of NODE is full",
    ]
    assert not any("Success" in line or "executed" in line for line in shown)


def test_each_line_is_shown_where_it_was_asked_for(tmp_path: Path) -> None:
    shown = lines(tmp_path, "-v")
    assert sum(line.endswith("Connected") for line in shown) == 64 and "64 connected" not in shown
