"""Slurm's nodes as 22.05.8 (Debian 12) and 24.11.5 (Debian 13) print them: what stands in tests/data/slurm is what
slurmctld of each said of four slurmd, one idle, one drained, one down, one with a job."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shakedown import hosts
from shakedown.schedulers.slurm import commands, nodes
from shakedown.schedulers.slurm.commands import Absent, SlurmError
from tests.slurm_commands import Programs

DATA = Path(__file__).parents[1] / "data/slurm"
REASON = "GPU 3: XGMI errors, State=IDLE? see ticket [17] = 5"


@pytest.fixture
def programs(tmp_path, monkeypatch):
    return Programs(tmp_path, monkeypatch)


@pytest.fixture
def program(programs):
    """Put a program of Slurm's name first in PATH: a shell script."""
    return programs.put


@pytest.mark.parametrize("file", ["22.05.8.txt", "24.11.5.txt"])
def test_both_versions_say_the_same(file, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    found = nodes.from_text((DATA / file).read_text())
    assert [node.name for node in found] == ["node1", "node2", "node3", "node4"]
    idle, drained, down, busy = found
    assert [node.states for node in found] == [["IDLE"], ["IDLE", "DRAIN"], ["DOWN"], ["MIXED"]]
    assert not idle.why_not() and all(node.why_not() for node in (drained, down, busy))
    assert drained.drained and drained.reason == REASON and drained.reason_by == "root"
    assert drained.why_not() == f"idle+drain: {REASON} [root]"
    assert down.down and down.why_not() == "down: No power [root]"
    assert busy.allocated and busy.allocated_cpus == 1 and busy.why_not() == "mixed: a job is on it"
    assert not busy.why_not(allow_allocated=True)
    assert all(node.partitions == ["main"] for node in found)


def test_marks_flags_and_gpus():
    """Flags as NODE STATE CODES of sinfo(1) has them; GRES as in SchedMD's rest_api.html (24.11)."""
    line = "NodeName=n1 State={} Gres={} CPUAlloc=0 Partitions=a,b"

    def one(state: str, gres: str = "(null)") -> nodes.Node:
        return nodes.from_text(line.format(state, gres))[0]

    assert one("IDLE*").states == ["IDLE", "NOT_RESPONDING"] and one("IDLE*").down
    assert one("IDLE+POWERED_DOWN").down and one("IDLE~").down
    assert not (one("IDLE+PLANNED").why_not() or one("IDLE+MAINTENANCE+RESERVED").why_not())
    for state in ("NEWEST", "IDLE+NEWEST", "MAINT", "MIXED+NEWEST"):
        assert "does not know" in one(state).why_not(True), "what this does not know is not free"
    for state in ("FUTURE", "UNKNOWN", "UNKNOWN*", "IDLE+POWERED_DOWN+PLANNED", "DOWN*+DRAIN", "IDLE$@", "INVAL"):
        assert one(state).down, state
    assert one("MIXED+PLANNED").why_not() == "mixed+planned: a job is on it" and one("ALLOCATED+").allocated
    assert not (one("IDLE+CLOUD+DYNAMIC_NORM").why_not() or one("IDLE-").why_not())
    assert one("IDLE+COMPLETING").allocated
    assert one("IDLE+POWER_DRAIN").down and one("MIXED*+DRAIN").drained
    assert one("IDLE", "gpu:fake1:1(S:0),gpu:fake2:1(S:0)").gpus == 2
    assert one("IDLE", "gpu:8,nic:2").gpus == 8 and one("IDLE", "gpu:mi300x:8(S:0-1)").gpus == 8
    assert one("IDLE").partitions == ["a", "b"] and one("IDLE").gpus == 0
    (held,) = nodes.from_text("NodeName=n1 State=IDLE CPUAlloc=1")
    assert held.allocated and held.why_not(), "a job holds a CPU, whatever the state says"
    assert one("idle+drain").drained and one("IDLE+RESERVED").states == ["IDLE", "RESERVED"]


def test_a_reason_goes_to_the_last_who_and_when():
    text = (DATA / "22.05.8.txt").read_text()
    quoted = f"as before: fan [bob@2026-01-01T00:00:00], State=IDLE, {REASON}"
    drained = nodes.from_text(text.replace(f"Reason={REASON}", f"Reason={quoted}"))[1]
    assert (drained.reason, drained.reason_by) == (quoted, "root") and drained.drained


@pytest.mark.parametrize(
    "text",
    ["no node", "NodeName=n1 State=", "NodeName=../x State=IDLE", "NodeName=a State=IDLE\nNodeName=a State=IDLE"],
)
def test_what_cannot_be_read_is_no_node_that_is_free(text):
    with pytest.raises(SlurmError):
        nodes.from_text(text)


def test_a_reason_cannot_move_the_terminal():
    text = (DATA / "24.11.5.txt").read_text()
    reason = nodes.from_text(text.replace(REASON, "\x1b[2Jgone"))[1].reason
    assert reason == "gone"


FORGED = "x RealMemory=1 State=IDLE Partitions=other Reason=fine [root@2026-01-01T00:00:00] Gres=gpu:99 CPUAlloc=9"


@pytest.mark.parametrize("field", ["Arch=x86_64", "Version=22.05.8", "OS=Linux "])
def test_what_a_node_says_of_itself_is_not_its_state(field):
    text = (DATA / "22.05.8.txt").read_text()
    before, word = nodes.from_text(text), field.partition("=")[0]
    after = nodes.from_text(text.replace(field, f"{word}={FORGED} "))
    assert after == before and before[1].drained
    unclear = nodes.from_text(text.replace(field, f"{word}={FORGED} CoresPerSocket=1 "))[1]
    assert unclear.down and unclear.drained and unclear.reason == REASON


@pytest.mark.parametrize("name", ["node1", "node9"])
def test_a_node_cannot_pass_for_another_by_a_line_end(program, name):
    text = (DATA / "22.05.8.txt").read_text()
    rows = text.splitlines(keepends=True)
    said = [row.replace("OS=Linux ", f"OS=Linux\nNodeName={name} State=IDLE ") for row in rows[:2]] + rows[2:]
    home = Path(os.environ["HOME"])
    for which, its in {"all": said, "node[1-2]": said[:2], **{f"node{n + 1}": [said[n]] for n in range(4)}}.items():
        (home / which).write_text("".join(its))
    program("sinfo", "printf 'node%d\n' 1 2 3 4")
    program("scontrol", 'exec cat "$HOME/${4:-all}"')
    for found in (nodes.read(), nodes.read(["node1", "node2"])):
        assert found == nodes.from_text(text)[: len(found)]


def test_a_node_that_the_answer_lacks_is_absent(program):
    program("scontrol", f"cat {DATA}/22.05.8.txt")
    assert len(nodes.read()) == 4
    with pytest.raises(Absent, match="node9"):
        nodes.read(["node1", "node9"])


def test_a_node_that_slurm_does_not_have_is_absent_and_a_name_that_is_none_is_not_asked_for(program):
    program("scontrol", 'echo "Node node9 not found"; exit 1')
    with pytest.raises(Absent, match="Node node9 not found"):
        commands.run("scontrol", "show", "node", "node9")
    for name in ("node1,node2", "-a", "node[1-3]", "a b", "../x"):
        with pytest.raises(SlurmError, match=r"is no name of a node in Slurm; slurm\.node gives it"):
            commands.update_nodes([name], "State=DRAIN")
    assert commands.names("(null)") == commands.names("None assigned") == []


def test_a_command_that_hangs_is_ended_and_named_with_its_remedy(program):
    program("scontrol", "sleep 600")
    with pytest.raises(SlurmError, match=r"scontrol ping \(on .*\): no answer within 0.2 s: .*slurmctld"):
        commands.run("scontrol", "ping", limit_s=0.2)


def test_a_command_that_is_not_there_or_says_too_much(program, monkeypatch):
    program("sinfo", "yes")
    monkeypatch.setattr(commands, "OUTPUT_BYTES", 1 << 20)
    with pytest.raises(SlurmError, match="more than 1 MiB"):
        commands.run("sinfo")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SlurmError, match="module load slurm"):
        commands.run("squeue")


def test_slurm_does_not_get_what_a_job_must_not_have(program, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_CONF", "/etc/elsewhere.conf")
    program("squeue", "env")
    said = commands.run("squeue")
    assert "hf_secret" not in said and "SLURM_JOB_ID" not in said and "SLURM_CONF=/etc/elsewhere.conf" in said


@pytest.fixture
def controller(programs):
    """A scontrol that says what 22.05.8 said, of four nodes more that are free."""
    idle = (DATA / "22.05.8.txt").read_text().splitlines()[0]
    more = "\n".join(idle.replace("node1", f"node{number}").replace("=main", "=spare") for number in (5, 6))
    reserved = idle.replace("node1", "node7").replace("State=IDLE", "State=IDLE+RESERVED")
    text = f"{(DATA / '22.05.8.txt').read_text()}{more}\n{reserved} ReservationName=sd"
    programs.nodes(f"{text}\n")


def test_an_inventory_has_the_free_nodes_and_names_the_others(controller, capsys):
    assert names() == ["node1", "node5", "node6"]
    said = capsys.readouterr().err
    assert f"node2: idle+drain: {REASON} [root]" in said and "node3: down: No power [root]" in said
    assert "node4: mixed: a job is on it" in said and "node7: idle+reserved: in the reservation sd" in said
    assert names("partition=main", allow_allocated=True) == ["node1", "node4"]
    assert names("reservation=sd") == ["node7"]
    assert names("partition=spare", "nodes=node[1-5]") == ["node5"]


def names(*conditions: str, **options: bool) -> list[str]:
    found = hosts.slurm(*conditions, **options)
    assert all(data == {"slurm": {"node": name}} for name, data in found)
    return [name for name, _ in found]


def test_an_inventory_without_nodes_is_an_error(controller):
    with pytest.raises(ValueError, match=r"none of these nodes can be used: node2: idle.drain"):
        hosts.slurm("nodes=node[2-3]")
    with pytest.raises(ValueError, match="no such node"):
        hosts.slurm("partition=nothing")
    with pytest.raises(ValueError, match=r"Slurm has no node node\[8,11-12\]"):
        hosts.slurm("nodes=node[1-2,8,11-12]")
    with pytest.raises(ValueError, match='expected one of "partition='):
        hosts.slurm("partitions=main")


def test_who_holds_a_node(program, controller):
    """node4's job is none that squeue shows: PrivateData."""
    program("squeue", 'echo "4711|alice|node[1-2]"; echo "4712|bob|node2"; echo "4713|bob|node9"')
    assert nodes.jobs_on(["node1", "node2", "node3", "node4"]) == {
        "node1": ["4711 of alice"],
        "node2": ["4711 of alice", "4712 of bob"],
        "node4": ["that squeue does not show (PrivateData?)"],
    }
    assert nodes.jobs_on([]) == {}
    program("squeue", 'echo "4714|root|node4"')
    assert nodes.jobs_on(["node4"], but=4714) == {}
    program("squeue", "echo nonsense")
    with pytest.raises(SlurmError, match="cannot be read"):
        nodes.jobs_on(["node1"])
