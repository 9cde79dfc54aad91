"""A training over four nodes that comes to a standstill: one goes its own way, or two no longer hear each other."""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

from shakedown.evidence.diagnosis.model import Diagnosis
from shakedown.evidence.results import JobResult
from shakedown.logs.signatures import MISMATCH
from tests.lab.jobs import CHECKOUT, Run, diagnosis, plan, rank_pid
from tests.lab.namespaces import Node, Rack

ODD = "node3"
STALL_S = 12.0  # evidence is taken when half of it is over
WAYS = ("stopped", "loop", "another", "shorter", "longer", "link")
_NOBODY = "02:00:00:00:00:99"  # a MAC address that no node has


@dataclass(frozen=True)
class Played:
    """One hang, and what came of it."""

    way: str
    right: bool  # who is meant is named, and nobody else: the node, or of a link both ends as undecided
    wrong: bool  # somebody else is named
    missing: tuple[str, ...]  # evidence that is not there
    seconds: float  # that the slowest node needed for its evidence
    found: Diagnosis
    result: JobResult


def cut(one: Node, other: Node) -> None:
    """The two no longer hear each other, and everybody else hears both: frames between them go to nobody."""
    for here, there in ((one, other), (other, one)):
        at = f"{there.address} lladdr {_NOBODY} dev {here.interface} nud permanent"
        here.exec(f"ip neigh replace {at}")


def mend(one: Node, other: Node) -> None:
    """As before."""
    for here, there in ((one, other), (other, one)):
        here.exec(f"ip neigh del {there.address} dev {here.interface}", check=False)


def play(lab: Rack, folder: Path, way: str, pair: tuple[str, str] = ("node2", "node3")) -> Played:
    """One training that comes to such a standstill."""
    shutil.rmtree(folder, ignore_errors=True)
    before = (f"{CHECKOUT}/tests/lab/smoke/odd.py",)
    run = Run(lab, folder, plan(lab, folder.name, 100_000, stall_s=STALL_S, before=before))
    one, other = (lab[name] for name in pair)
    try:
        run.until_it_trains()
        if way == "link":
            cut(one, other)
        elif way == "stopped":
            os.kill(rank_pid(lab[ODD]), signal.SIGSTOP)
        else:
            lab[ODD].write("/root/odd", way)
        result = run.end()
    finally:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()
        lab[ODD].exec("rm -f /root/odd")
        mend(one, other)
    return told(way, pair, lab, folder, result)


def told(way: str, pair: tuple[str, str], lab: Rack, folder: Path, result: JobResult) -> Played:
    """Hold what was found against what was done."""
    found = diagnosis(result, lab, folder)
    meant = set(pair) if way == "link" else {ODD}
    named = set(found.origin)
    right = named == meant or (way == "link" and not named and set(found.among) == meant)
    return Played(way, right, bool(named - meant), tuple(lacking(way, result)), took(result), found, result)


def lacking(way: str, result: JobResult) -> list[str]:
    """What should be there of every rank and is not: its state and stacks, and its collectives where it runs. A rank
    that gloo has ended left no more than its log; the others wrote theirs as they ended."""
    ended = {failure.node for failure in result.failures if failure.kind == MISMATCH}
    missing = []
    for node in result.nodes:
        if ended:
            wanted = ["node.json"] if node.name in ended else ["node.json", "failed-"]
        elif way == "stopped" and node.name == ODD:
            wanted = ["node.json", "process-"]
        else:
            wanted = ["node.json", "process-", "stacks-", "flight-"]
        names = [path.name for path in node.logs if path.stat().st_size]
        missing += [f"{node.name}: {each}" for each in wanted if not any(name.startswith(each) for name in names)]
    return missing


def took(result: JobResult) -> float:
    """How long the slowest node was at its evidence, by its own clock; 0: none was taken."""
    files = [path for node in result.nodes for path in node.logs if path.name == "node.json"]
    return max((float(json.loads(path.read_text())["seconds"]) for path in files), default=0.0)
