"""What a dry run shows: changes, logins, reboots, the time, the job, and what the nodes lack for it."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shakedown.checks.examination import Examination, Reading
from shakedown.jobs.launch import Need
from shakedown.jobs.remote import lacking
from shakedown.ledger.history import JobRow, RunRow
from shakedown.node.launcher import needs
from shakedown.report.preview import WIDTH, Duration, Preview, changes_of, gaps, lines
from shakedown.runner import preview as preview_module
from shakedown.runner.preview import _published_s
from shakedown.runner.training import preview_of
from shakedown.state.findings import Verdict
from tests import forks, sshd
from tests.nodes import LocalNodes, launch_plan
from tests.plans import DIGEST, IMAGE, rack, small
from tests.states import desired, healthy, image, unreadable, with_

PROJECT = Path(__file__).resolve().parents[2]
PYTHON = {"kind": "python", "path": sys.executable, "modules": ["json", "os.path"]}


def lacks(**need: Any) -> str:
    return "; ".join(lack["text"] for lack in needs.lacking([need], dict(os.environ)))


# ------------------------------------------------------------------------------------------------------- on the node


def test_an_interpreter_its_modules_and_its_programs_are_looked_for(tmp_path: Path) -> None:
    assert lacks(**PYTHON) == ""
    assert lacks(kind="python", path="/opt/nope/bin/python", modules=[]) == "/opt/nope/bin/python is missing"
    absent = lacks(**{**PYTHON, "modules": ["json", "no_such_thing.at.all"]})
    assert absent.startswith(f"{sys.executable} lacks no_such_thing.at.all (pip install 'shakedown[train]'")
    script = tmp_path / "python"
    script.write_text("#!/opt/nope/python\n")
    assert "no program that this user may run" in lacks(kind="python", path=str(script), modules=[])
    script.chmod(0o755)
    assert "cannot run: the interpreter that it names is missing" in lacks(kind="python", path=str(script), modules=[])
    script.write_text("#!/bin/sh\necho no good >&2; exit 3\n")
    assert lacks(kind="python", path=str(script), modules=[]).endswith("cannot run: exit code 3: no good")
    link = tmp_path / "link"
    link.symlink_to("/opt/nope/python")
    assert lacks(kind="program", path=str(link)) == f"{link} is a link to what is missing"


@pytest.mark.parametrize("mode", [0o755, 0o1777, 0o777, 0o775])
def test_files_are_written_where_no_other_user_can_exchange_the_folder(tmp_path: Path, mode: int) -> None:
    assert lacks(kind="room", path=str(tmp_path / "no"), size=1).endswith(f"{tmp_path}/no: no such folder")
    folder, link = tmp_path / "scratch", tmp_path / "link"
    folder.mkdir()
    os.chown(folder, -1, 65534)
    folder.chmod(mode)
    link.symlink_to(folder)
    is_open = mode in (0o777, 0o775)
    assert is_open or "and the job needs 1099511627776 MiB" in lacks(kind="room", path=str(folder), size=1 << 60)
    for path in (folder, link):
        reason = lacks(kind="room", path=str(path), size=1).partition(": ")[2]
        assert reason.startswith(f"{folder} has mode {mode:04o}, so others could redirect" if is_open else "")
        assert bool(reason) == is_open


def test_a_program_beside_an_interpreter_that_is_missing_says_no_more() -> None:
    wanted = [{"kind": kind, "path": f"/opt/nope/bin/{kind}", "modules": []} for kind in ("python", "program")]
    assert [lack["kind"] for lack in needs.lacking(wanted, {})] == ["python"]


def test_data_room_port_and_image_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c4_text.bin").write_text("x")
    assert lacks(kind="data", path=str(tmp_path)) == lacks(kind="data", path=str(tmp_path / "c4_text")) == ""
    assert lacks(kind="data", path=str(tmp_path / "c5")) == f"the data {tmp_path}/c5 are missing"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert lacks(kind="room", path="", size=1) == ""
    assert "and the run folder needs 1073741824 MiB" in lacks(kind="room", path="", size=1 << 50)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        port = server.getsockname()[1]
        assert f"port {port} of 127.0.0.1 cannot be used" in lacks(kind="port", path="", address="127.0.0.1", port=port)
    assert lacks(kind="port", path="", address="127.0.0.1", port=port) == ""
    engine = tmp_path / "docker"
    engine.write_text('#!/bin/sh\ntest "$5" = there || { echo "No such image: $5" >&2; exit 1; }\n')
    engine.chmod(0o755)
    assert lacks(kind="image", path=str(engine), image="there") == ""
    assert lacks(kind="image", path=str(engine), image="x:y").endswith("No such image: x:y")
    assert "it is not installed" in lacks(kind="image", path="/opt/nope/docker", image="x:y")


def test_the_run_and_the_dry_run_look_with_the_same_code(tmp_path: Path) -> None:
    """The launcher's first look, over a connection; and its preparation, of which nothing starts."""
    nodes = LocalNodes(tmp_path)
    plan = launch_plan({"n": ["true"]}, needs=[Need(kind="program", path="/opt/nope/x")])
    (lack,) = lacking(plan.nodes[0], container=False, remote=nodes)
    assert (lack.kind, lack.text) == ("program", "/opt/nope/x is missing")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()], "nothing is left on the node"


# ---------------------------------------------------------------------------------------------------------- the plan


def examined(changes: dict[str, dict[str, Any]], nodes: int = 3, **smoke: Any) -> Examination:
    names = [f"node{number + 1:02d}" for number in range(nodes)]
    job = {"recipe": "llama3.1-8b-fp8", "image": "megatron", **smoke}
    own = desired("mi300x", "thor2", images={"megatron": IMAGE}, smoke=job, system={"reboot": "when needed"})
    found = Examination(dict.fromkeys(names, own))
    for number, name in enumerate(names):
        state = with_(healthy(number + 1), {"containers.images": [image(IMAGE, DIGEST)], **changes.get(name, {})})
        found.keep(name, Reading(state))
    found.judge()
    return found


@pytest.mark.parametrize(
    "fault",
    [
        {"gpus": healthy().model_dump(mode="json")["gpus"][:7]},
        {"gpus": unreadable("failed", "amd-smi is missing")},
        {"rdma.0.state": "DOWN"},
        {"rdma": unreadable("failed")},
    ],
    ids=["gpu lost", "gpus unread", "hca down", "hcas unread"],
)
@pytest.mark.parametrize("all_nodes", [False, True])
def test_the_job_is_shown_although_nodes_are_unfit(fault: dict[str, Any], all_nodes: bool) -> None:
    bad = ["node01", "node02", "node03"] if all_nodes else ["node02"]
    plans, hindrances = preview_of(examined(dict.fromkeys(bad, fault)))
    (plan,) = plans.values()
    assert plan.world_size == 24 and [node.ranks for node in plan.nodes] == [8, 8, 8]
    assert plan.nodes[0].command[:2] == ["docker", "run"]
    assert hindrances and all(any(name in text for text in hindrances) for name in bad)


def test_a_job_in_whose_way_nothing_stands_is_the_one_that_starts() -> None:
    plans, hindrances = preview_of(examined({}))
    assert hindrances == [] and plans["together"].world_size == 24
    lost, hindrances = preview_of(examined({"node03": {"rdma.0.state": "DOWN"}}, min_nodes=2))
    assert hindrances == [] and lost["together"].missing.keys() == {"node03"}


def test_equal_changes_are_one_line_and_all_fits_on_a_screen() -> None:
    fault = {
        "limits.memlock.running": "8192",
        "limits.memlock.persisted": None,
        "numa.balancing.running": "1",
        "numa.balancing.persisted": None,
    }
    found = examined({f"node{number:02d}": fault for number in range(1, 65)}, nodes=64)
    fixable = [finding for node in found.desired for finding in found.fixable(node)]
    plans, _ = preview_of(found)
    preview = Preview(
        changes=changes_of(fixable),
        logins=[finding.node for finding in fixable if finding.new_login],
        duration=Duration(seconds=700, source="median of 5 earlier passed runs"),
        jobs=plans,
        looked_at=list(found.desired),
        lacking=gaps({node: ["/opt/nope/bin/python is missing"] for node in found.desired}),
    )
    shown = list(lines(preview, 64))
    assert max(map(len, shown)) <= WIDTH and len(shown) <= 40
    assert [line for line in shown if re.fullmatch(r" ~ memlock +8192 KiB -> unlimited +64 nodes", line)]
    assert [line for line in shown if re.fullmatch(r" ~ numa_balancing +1 -> 0 +64 nodes", line)]
    text = "\n".join(shown)
    assert "new logins   node[01-64]: connected again after the changes" in text
    assert "expected     about 12 min: median of 5 earlier passed runs" in text
    assert "ranks        512 = TP 1 x PP 1 x DP 512" in text and "bnxt_re[0-7]" in text
    assert "preflight    0 of 64 nodes have what the job needs" in text
    assert "64 of 64 nodes: /opt/nope/bin/python is missing: check the inventory or the image" in text


def test_interfaces_that_each_node_names_otherwise_are_counted() -> None:
    plans, _ = preview_of(examined({}))
    plan = plans["together"]
    renamed = [node.model_copy(update={"interface": f"eth-{node.name}"}) for node in plan.nodes]
    plans["together"] = plan.model_copy(update={"nodes": renamed})
    short, whole = (
        [line for line in lines(Preview(jobs=plans), 3, whole=whole) if " HCAs " in line] for whole in (False, True)
    )
    assert len(renamed) == len(whole) == 3 and "over eth-node01 on node01" in whole[0]
    assert len(short) == 1 and short[0].endswith("over 3 interfaces on 3 nodes")


def test_the_command_of_the_job_is_whole_where_more_is_shown() -> None:
    plans, _ = preview_of(examined({}))
    command = plans["together"].nodes[0].command
    short, whole = (list(lines(Preview(jobs=plans), 3, whole=whole)) for whole in (False, True))
    assert any(line.endswith(" ... (-v: whole)") for line in short) and max(map(len, short)) <= WIDTH
    place = whole.index(" command      of node01:")
    assert shlex.split(whole[place + 1]) == command and "..." not in "".join(whole)


def test_logins_and_reboots_that_a_person_has_to_make_are_named() -> None:
    preview = Preview(logins=["n1"], by_hand=["n2"], reboots=["n3"], waiting=["n4"])
    text = "\n".join(lines(preview, 4))
    assert "new logins   n1: connected again after the changes; n2: by you; the run ends as drift" in text
    assert "reboots      n3 by this run; n4 by you, since system.reboot is never; the run ends as drift" in text


def test_a_single_node_that_lacks_something_is_named_and_no_common_fault() -> None:
    preview = Preview(looked_at=["n1", "n2", "n3"], lacking=gaps({"n2": ["x is missing"]}))
    text = "\n".join(lines(preview, 3))
    assert "2 of 3 nodes have what the job needs" in text and "n2: x is missing\n" in f"{text}\n"


def test_the_time_of_the_iterations_follows_from_a_published_figure() -> None:
    for plan in (rack("llama3.1-8b-fp8"), rack("llama3.1-8b-fp8", 4)):
        assert _published_s(plan) == pytest.approx(plan.iterations * 12.0), "document's 12,000 ms, at any size"
    by_tokens = rack("llama3.1-8b-fp8", expect={"tokens_per_gpu": 6000}).model_copy(
        update={"expect": {"tokens_per_gpu": 6000, "elapsed_time_per_iteration": 0}}
    )
    tokens = by_tokens.iterations * by_tokens.global_batch * by_tokens.seq_length
    assert _published_s(by_tokens) == pytest.approx(tokens / 6000 / 8)
    assert _published_s(rack("llama3.1-8b-fp8", options={"TP": 2})) is None, "another job"
    assert _published_s(small()) is None


def earlier(number: int, seconds: int, **changes: Any) -> RunRow:
    at = datetime(2026, 11, 1, 8, number, tzinfo=UTC)
    row = {"run_id": f"r{number}", "kind": "run", "at": at, "finished_at": at + timedelta(seconds=seconds), "nodes": 0}
    job = JobRow(job="together", recipe="gpt-small", verdict=Verdict.OK, nodes=0)
    more = {"verdict": Verdict.OK, "inventory": "rack.py", "wrong": "", "not_ok": 0, "kept_at": "x", "jobs": [job]}
    return RunRow(**{**row, **more, **changes})


def test_the_time_is_the_median_of_earlier_passed_runs_like_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [earlier(number, seconds) for number, seconds in enumerate((100, 200, 900))]
    others = [
        earlier(10, 5000, verdict=Verdict.FAIL),
        earlier(11, 5000, inventory="other.py"),
        earlier(12, 5000, nodes=8),
        earlier(13, 5000, jobs=[]),
        earlier(14, 5000, kind="drift"),
        earlier(15, 5000, finished_at=None),
    ]
    monkeypatch.setattr(preview_module, "earlier", lambda _limit: [*others, *rows])
    monkeypatch.setattr(preview_module.invocation, "inventory", "rack.py")
    current: Any = SimpleNamespace(hosts=[], examination=examined({}))
    found = preview_module._duration(current, 3, {}, trains=True)
    assert found.seconds == 200
    assert found.source.startswith("median of 3 earlier passed runs over as many nodes, by the ledger")
    assert found.source.endswith("reboots come on top, at most 45 min"), "three, one at a time, of 15 min"
    monkeypatch.setattr(preview_module, "earlier", lambda _limit: others)
    plans = {"together": rack("llama3.1-8b-fp8")}
    published = preview_module._duration(current, 0, plans, trains=True)
    assert published.seconds == plans["together"].iterations * 12.0
    assert "published figure; no earlier run of this inventory" in published.source


# --------------------------------------------------------------------------------------------------------- as a user


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Path]:
    """An inventory of three names, each another sshd's port of this machine."""
    started = []
    try:
        rows = []
        for number in range(3):
            (tmp_path / str(number)).mkdir()
            node, server = sshd.start(tmp_path / str(number))
            started.append(server)
            rows.append((f"n{number + 1}", {**node.data(), "ssh_strict_host_key_checking": "off"}))
        data = {
            "gpu": "cpu",
            "tuning": {"numa_balancing": None},
            "smoke": {"recipe": "gpt-small", "venv": "/opt/nope"},
        }
        (tmp_path / "site.py").write_text(f"rack = ({rows!r}, {data!r})\n")
        yield tmp_path
    finally:
        for server in started:
            server.terminate()
            server.wait()


def call(folder: Path, *command: object) -> tuple[int, str, str]:
    argv = [str(Path(sys.executable).with_name(str(command[0]))), *map(str, command[1:])]
    return forks.run(argv, folder, {**os.environ, "PYINFRA_PROGRESS": "off", "HOME": str(folder)})


@pytest.mark.skipif(sshd.SSHD is None, reason="no sshd")
def test_a_fault_that_all_nodes_share_is_shown_once_and_counts(three: Path) -> None:
    common = "3 of 3 nodes: check the inventory or the image"
    for command in (
        ("pyinfra", "site.py", PROJECT / "deploy/megatron.py", "--dry", "-y"),
        ("shakedown", "run", "site.py", "--dry"),
    ):
        code, out, err = call(three, *command)
        assert code == 1, err
        told = " ".join(err.split())
        assert "verdict: fail" in told and f"/opt/nope/bin/python is missing ({common})" in told, err
        text = out + err
        assert "3 of 3 nodes: /opt/nope/bin/python is missing: check the inventory or the image" in text, text
        assert "ranks        6 = TP 1 x PP 1 x DP 6" in text
    assert not (three / "runs").exists() and not (three / ".cache/shakedown/runs").exists()


def test_json_carries_the_plan(tmp_path: Path) -> None:
    data = '{"gpu": "cpu", "tuning": {"numa_balancing": None}, "smoke": {"recipe": "gpt-small", "steady": False}}'
    (tmp_path / "site.py").write_text(f'site = (["@local"], {data})\n')
    code, out, err = call(tmp_path, "shakedown", "run", "site.py", "--dry", "--format", "json")
    assert code == 0, err
    plan = json.loads(out)["plan"]
    assert plan["jobs"]["together"]["world_size"] == 2 and plan["looked_at"] == ["@local"] and plan["lacking"] == []
    assert plan["duration"]["seconds"] is None and "no earlier run" in plan["duration"]["source"]
    assert subprocess.run(["ls", tmp_path], capture_output=True, text=True).stdout.split() == ["site.py"]
