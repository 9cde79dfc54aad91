"""Documents for tests of reports: a run of several nodes with one that is odd, and names that nobody should trust."""

from __future__ import annotations

import random
from pathlib import Path

from shakedown.desired.models import TOGETHER
from shakedown.gates import read_log
from shakedown.logs.figures import measure
from shakedown.logs.kept_logs import KeptLog, LogFile, LogQuota
from shakedown.report.formats import Findings, Run
from shakedown.runs.directory import Evidence, JobRecord, RunDirectory, RunNode, RunRecord
from shakedown.runs.isolation import Group, Isolation, Problem, Result, Suspect, Training
from shakedown.runs.judging import judge_run, verdict_of
from shakedown.state.findings import Finding, Remedy, Risk, Verdict
from shakedown.trials.models import Judged as Measured
from shakedown.trials.models import Matrix, TrialsRecord
from shakedown.trials.soak import Growth, SoakRecord, SoakStage
from tests.plans import small
from tests.states import healthy

LOGS = Path(__file__).parent / "data" / "logs"
HOSTILE = "<script>alert(1)</script>`|*[x](javascript:y)&$\\frac\x1b[31m\u202e"
"""A name of a node, a finding and a line: markup of every language that reports are written in."""


def finding(node: str, name: str, verdict: Verdict = Verdict.OK, actual: object = "x", text: str = "set it") -> Finding:
    """One that wants "always"."""
    wanted = actual if verdict == Verdict.OK else "always"
    remedy = None if verdict == Verdict.OK else Remedy(text=text, risk=Risk.SAFE)
    return Finding(name=name, node=node, verdict=verdict, wanted=wanted, actual=actual, remedy=remedy)


def drifted() -> Findings:
    """Four nodes: two alike and well, one that drifted, one that could not be read."""
    nodes = [f"node{number:02d}" for number in range(1, 5)]
    found = [finding(node, name) for node in nodes for name in ("thp", "numa_balancing", "gpu_count")]
    found[6] = finding("node03", "thp", Verdict.DRIFT, "never")
    found[10] = finding("node04", "numa_balancing", Verdict.UNKNOWN, None, "log in and look")
    return Findings(Verdict.UNKNOWN, 4, found, inventory="rack.py", at="2026-11-23T04:00:00+00:00")


def hostile() -> Findings:
    """One node, one finding, and every text of it a trap."""
    bad = Finding(
        name=HOSTILE,
        node=HOSTILE,
        verdict=Verdict.FAIL,
        wanted=HOSTILE,
        actual=HOSTILE,
        evidence=HOSTILE,
        remedy=Remedy(text=HOSTILE),
    )
    return Findings(Verdict.FAIL, 1, [bad], inventory=HOSTILE)


def many(nodes: int = 512, names: int = 60, alike: bool = False) -> Findings:
    """A rack on its worst day, nearly every node odd in its own way; `alike`: on a good one."""
    found = []
    dice = random.Random(12)
    for node in range(nodes):
        for name in range(names):
            odd = node % 171 == 5 and name == 7 if alike else dice.random() < 0.4
            verdict = (Verdict.DRIFT, Verdict.FAIL, Verdict.UNKNOWN)[(node + name) % 3] if odd else Verdict.OK
            actual = f"{node * names + name} of what was wanted" if odd else "always"
            found.append(finding(f"node{node + 1:03d}.rack7.example.org", f"setting_{name:02d}", verdict, actual))
    return Findings(Verdict.FAIL, nodes, found, inventory="inventories/rack.py", at="2026-11-23T04:00:00+00:00")


def a_run(root: Path, log: str = "rocm.log", nodes: int = 1, line: str = "") -> Run:
    """A run over nodes with that log on the last one, judged; `line` is one more, at the log's end."""
    directory = RunDirectory.create("20261123T040000-abcdef", root)
    plan = small(nodes, iterations=20)
    names = [node.name for node in plan.nodes]
    kept: dict[str, list[KeptLog]] = {}
    for name in names:
        text = (LOGS / log).read_bytes() + f"{line}\n".encode() if name == names[-1] else b"up\n"
        kept[name] = [keep(directory, name, text)]
    iterations = read_log(directory.path / kept[names[-1]][0].path).iterations
    logs = {name: [each.path for each in its] for name, its in kept.items()}
    record = RunRecord(
        run_id=directory.path.name,
        started_at="2026-11-23T04:00:00+00:00",
        finished_at="2026-11-23T04:10:00+00:00",
        inventory="rack.py",
        desired_digest="0",
        nodes=[RunNode(name=name, verdict=Verdict.OK, part="trained", exit_code=0, logs=logs[name]) for name in names],
        findings=[finding(name, "thp") for name in names],
        jobs=[JobRecord(plan=plan, logs=logs, iterations=list(iterations), figures=measure(iterations))],
    )
    counters = {name: {"ethtool/eth0/rx_errors": 0} for name in names}
    codes: dict[str, int | None] = dict.fromkeys(names, 0)
    evidence = Evidence(exit_codes=codes, counters_before=counters, counters_after=counters, logs=kept)
    record.gates = judge_run(directory, record, {TOGETHER: evidence})
    record.verdict = verdict_of(record, record.gates)
    directory.save(record, {TOGETHER: evidence})
    return Run(record, directory=directory.path)


def keep(directory: RunDirectory, node: str, content: bytes, name: str = "leader.log") -> KeptLog:
    """A log of a node in a run directory, whole."""
    log = LogFile(name, directory.logs / node / name, LogQuota())
    log.write(content)
    log.size = len(content)
    return log.close().model_copy(update={"path": f"logs/{node}/{name}"})


def a_failed_run(root: Path) -> Run:
    """Three nodes, of which one died at the end of a log from a real machine."""
    line = "RuntimeError: HIP error: an illegal memory access was encountered"
    frames = 'Traceback (most recent call last):\n  File "/workspace/Megatron-LM/pretrain_gpt.py", line 12, in <module>'
    return a_run(root, nodes=3, line=f"{frames}\n{line}")


def a_run_for_acceptance(root: Path) -> Run:
    """A run with the parts of its nodes, trials, a waiver, a burn-in, and texts that nobody should trust."""
    run = a_full_run(root)
    assert run.directory is not None
    (run.directory / "states").mkdir()
    for number, node in enumerate(run.record.nodes[:-1], 1):
        (run.directory / f"states/{node.name}.json").write_text(healthy(number).model_dump_json())
    run.record.nodes[0].host_key = "ssh-ed25519 SHA256:AAAABBBBCCCC"
    waived = finding("node01", "rdma_rate", Verdict.WARN, HOSTILE).model_copy(update={"waiver": "cable-7"})
    run.record.findings += [waived, finding("node02", "thp", Verdict.DRIFT, HOSTILE)]
    grown = [
        Growth(node="node01", counter=f"0000:0{slot}:00.0 correctable", first=1, last=last, hours=24.0)
        for slot, last in ((1, 25), (2, 52))
    ]
    stage = SoakStage(name="cpu", wanted_s=60.0, done_s=20.0)
    run.record.soak = SoakRecord(total_s=60.0, stages=[stage], growth=grown)
    return run


def a_full_run(root: Path) -> Run:
    """The same with all else that a run may have been asked for: trials, and a search for bad nodes."""
    run = a_failed_run(root)
    odd = Measured(
        trial="memory",
        figure="bandwidth",
        node="node02",
        part="numa0",
        unit="GB/s",
        values=[50.0],
        median=50.0,
        of_peers=100.0,
        standing="named",
        why="half of its peers",
    )
    well = odd.model_copy(update={"node": "node01", "median": 100.0, "standing": "ok"})
    cells = {"node01": {"node02": [9.0, 9.1]}, "node02": {"node01": [4.0, 4.2]}}
    nodes = ["node01", "node02"]
    pairs = Matrix(figure="bandwidth", unit="Gb/s", nodes=nodes, cells=cells, slow=[["node02", "node01"]])
    run.record.trials = TrialsRecord(asked=["memory"], repetitions=1, judged=[well, odd], matrices=[pairs])
    whole = Group(id="1.1", nodes=("node01", "node02"), purpose="groups")
    part = Group(id="2.1", nodes=("node02",), purpose="halves", parent="1.1")
    tried = [Training(group=whole, outcome="fail", why="exit 1"), Training(group=part, outcome="fail", why="<b>x</b>")]
    suspect = Suspect(kind="node", nodes=("node02",), trainings=("1.1", "2.1"), probability=0.99)
    result = Result(suspects=[suspect], cleared=["node01"], conclusion="node02 is suspect.")
    run.record.isolation = Isolation(problem=Problem(nodes=nodes), rounds=[tried[:1], tried[1:]], result=result)
    return run


def a_rack() -> Findings:
    """512 nodes on an ordinary day: nearly all are well, and some are not."""
    names = ("thp", "numa_balancing", "cpu_governor", "c2", "memlock", "gpu_count", "rdma_count", "mtu", "disk_free./")
    odd = {
        ("thp", range(17, 25)): (Verdict.DRIFT, "madvise", "set it to always"),
        ("cpu_governor", range(17, 25)): (Verdict.DRIFT, "powersave", "set it to performance"),
        ("gpu_count", (129,)): (Verdict.FAIL, "7 of 8", "reseat the GPU, or take the node out"),
        ("mtu", (300, 301)): (Verdict.UNKNOWN, None, "install ethtool"),
    }
    found = []
    for node in range(1, 513):
        for name in names:
            bad = next((what for (of, nodes), what in odd.items() if of == name and node in nodes), None)
            verdict, actual, text = bad or (Verdict.OK, "as wanted", "")
            found.append(finding(f"node{node:03d}.rack7", name, verdict, actual, text))
    return Findings(Verdict.FAIL, 512, found, inventory="inventories/rack.py", at="2026-11-23T04:00:00+00:00")
