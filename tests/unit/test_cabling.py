"""Cables: neighbours by LLDP (tests/data/lldp: lldpd 1.0.16 between two namespaces, 2026-11-29) against a plan."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shakedown import checks
from shakedown.agent.compile import compiled
from shakedown.checks.cabling import swapped
from shakedown.checks.examination import Examination, Reading
from shakedown.desired.layers import HostLayers, Layer
from shakedown.desired.models import DesiredState
from shakedown.desired.problems import DesiredStateError
from shakedown.node import interfaces
from shakedown.node.tree import Tree, Unreadable
from shakedown.report.causes import causes
from shakedown.runner.features import resolve
from shakedown.state.findings import Finding
from shakedown.state.node import NodeState
from tests.states import desired, healthy, resolved, unreadable, with_

DATA = Path(__file__).parents[1] / "data/lldp"
HEADER = "node,port,switch,switch_port\n"
EMPTY = '{"lldp": [{}]}'  # what json0 has where there is no neighbour


def plan(nodes: int = 3, ports: int = 2) -> str:
    return HEADER + "".join(
        f"node{node:02d},ens{port}np0,leaf{port},Ethernet1/{node}\n"
        for node in range(1, nodes + 1)
        for port in range(ports)
    )


@pytest.fixture
def wanted(tmp_path: Path) -> DesiredState:
    (tmp_path / "cables.csv").write_text(plan())
    return desired(rdma={"cabling": str(tmp_path / "cables.csv"), "count": 2})


def neighbour(interface: str, system: str, port: str, **more: str) -> dict[str, str]:
    return {"interface": interface, "system": system, "chassis": "de:bb", "port": port, "port_description": "", **more}


def node(number: int, ends: dict[str, tuple[str, str]] | None = None, **changes: Any) -> NodeState:
    """A node of two ports with these ends, or as planned."""
    ends = ends if ends is not None else {f"ens{port}np0": (f"leaf{port}", f"Ethernet1/{number}") for port in range(2)}
    heard = [neighbour(interface, *end) for interface, end in ends.items()]
    return with_(healthy(number, hcas=2), {"neighbours": heard, **changes})


def judged(wanted: DesiredState, state: NodeState, name: str = "node01") -> Finding:
    return next(found for found in checks.evaluate(wanted, state, name) if found.name == "cabling")


def test_what_lldpcli_prints_is_read() -> None:
    first, second = interfaces.parse_neighbours((DATA / "json0_two.json").read_text())
    assert first == neighbour("ra0", "swB", "rb0", chassis="de:bb:ef:27:9b:9e", port_description="rb0")
    assert (second["interface"], second["port"]) == ("ra1", "rb1")
    assert interfaces.parse_neighbours(EMPTY) == interfaces.parse_neighbours('{"lldp": []}') == []


def test_planned_neighbours_are_ok(wanted: DesiredState) -> None:
    assert judged(wanted, node(1)).verdict == "ok"
    assert not swapped({"node01": node(1)}, {"node01": wanted})


@pytest.mark.parametrize(
    "heard",
    [
        neighbour("ens0np0", "LEAF0.site.example", "Ethernet1/1"),
        neighbour("ens0np0", "other", "ethernet1/1", chassis="leaf0"),
        neighbour("ens0np0", "leaf0", "aa:bb:cc:dd:ee:ff", port_description="Ethernet1/1"),
    ],
)
def test_a_switch_goes_by_its_names(wanted: DesiredState, heard: dict[str, str]) -> None:
    other = neighbour("ens1np0", "leaf1", "Ethernet1/1")
    assert judged(wanted, node(1, neighbours=[heard, other])).verdict == "ok"


SECOND = {"ens1np0": ("leaf1", "Ethernet1/1")}


@pytest.mark.parametrize(
    ("ends", "changes", "verdict", "words"),
    [
        ({"ens0np0": ("leaf0", "Ethernet1/9"), **SECOND}, {}, "fail", "leaf0 Ethernet1/9, planned leaf0 Ethernet1/1"),
        ({"ens0np0": ("leaf00", "Ethernet1/1"), **SECOND}, {}, "fail", "leaf00 Ethernet1/1, planned"),
        ({"ens0np0": ("leaf1", "Ethernet1/1"), "ens1np0": ("leaf0", "Ethernet1/1")}, {}, "fail", "the end of ens1np0,"),
        (SECOND, {}, "fail", "no neighbour, planned leaf0 Ethernet1/1; other ports of bnxt_re"),
        (SECOND, {"rdma.0.phys_state": "Disabled"}, "fail", "no link, planned leaf0"),
        ({}, {}, "unknown", "no neighbour heard"),
        (None, {"neighbours": unreadable("missing", "lldpcli")}, "unknown", "lldpcli"),
        (None, {"neighbours": unreadable("not permitted", "lldpcli")}, "unknown", "not permitted"),
    ],
)  # fmt: skip
def test_each_fault_of_a_cable(
    wanted: DesiredState, ends: dict[str, tuple[str, str]] | None, changes: dict[str, Any], verdict: str, words: str
) -> None:
    finding = judged(wanted, node(1, ends, **changes))
    assert (finding.verdict, words in finding.evidence) == (verdict, True), finding
    assert finding.remedy is not None


def test_a_second_sender_on_a_port_is_never_ok(wanted: DesiredState) -> None:
    """One of the two lies, and nothing tells which; lldpd lists a switch twice that speaks two protocols."""
    state = node(1)
    planned = state.model_dump()["neighbours"]
    for end in (("evil", "Ethernet1/1"), ("leaf0", "Ethernet1/9"), ("leaf1", "Ethernet1/1")):
        for heard in ([*planned, neighbour("ens0np0", *end)], [neighbour("ens0np0", *end), *planned]):
            finding = judged(wanted, with_(state, {"neighbours": heard}))
            assert finding.verdict == "unknown" and f"other neighbours on the port: {' '.join(end)}" in finding.evidence
            assert finding.remedy and "who else sends LLDP" in finding.remedy.text
    assert judged(wanted, with_(state, {"neighbours": [*planned, *planned]})).verdict == "ok"


def test_a_plan_without_a_node_of_the_inventory_is_refused(wanted: DesiredState) -> None:
    cabling = {"rdma": {"cabling": wanted.rdma.cabling}}
    names = ("node01.rack", "node02.rack")
    layers = [HostLayers(name, (Layer("user", {"gpu": "mi300x", "nic": "thor2", **cabling}),)) for name in names]
    with pytest.raises(
        DesiredStateError, match=r"rdma.cabling = node01, .*expected a plan with hosts of the inventory"
    ):
        resolve(layers, whole=True)
    assert resolve(layers).states, "of a part of the inventory nothing is known"
    part = {"cabling": {**(wanted.rdma.cabling or {}), "node02.rack": {"ens0np0": ["leaf0", "Ethernet1/7"]}}}
    one = [HostLayers(name, (Layer("user", {"gpu": "mi300x", "nic": "thor2", "rdma": part}),)) for name in names]
    assert resolve(one, whole=True).states, "a plan may have more racks, and lack a node"


@pytest.mark.parametrize(
    ("driver", "words"), [("ice", "fw-lldp-agent off"), ("mlx5_core", "LLDP_NB_RX"), ("new", "LLDP agent")]
)
def test_firmware_that_keeps_lldp_to_itself_is_unknown_with_what_to_do(
    wanted: DesiredState, driver: str, words: str
) -> None:
    finding = judged(wanted, node(1, {}, **{"rdma.0.driver": driver, "rdma.1.driver": driver}))
    assert finding.verdict == "unknown" and finding.remedy and words in finding.remedy.text


def test_what_the_plan_forgets_is_unknown(wanted: DesiredState) -> None:
    assert judged(wanted, node(1), "node77").evidence == "the node is not in the plan"
    more = judged(wanted, with_(healthy(1, hcas=3), {"neighbours": node(1).model_dump()["neighbours"]}))
    assert more.verdict == "unknown" and more.actual == {"ens2np0": "not in the plan"}


def test_cables_swapped_between_nodes_are_one_cause(wanted: DesiredState) -> None:
    planned = {"ens1np0": ("leaf1", "Ethernet1/1")}
    states = {
        "node01": node(1, {"ens0np0": ("leaf0", "Ethernet1/2"), **planned}),
        "node02": node(2, {"ens0np0": ("leaf0", "Ethernet1/3"), "ens1np0": ("leaf1", "Ethernet1/2")}),
        "node03": node(3, {"ens0np0": ("leaf0", "Ethernet1/1"), "ens1np0": ("leaf1", "Ethernet1/3")}),
    }
    examination = Examination(dict.fromkeys(states, wanted))
    for name, state in states.items():
        examination.keep(name, Reading(state))
    examination.judge()
    found = [f for f in examination.all_findings() if f.name.endswith("cabling")]
    assert len(found) == 6, "each node says what it sees, and all what it means"
    (cause,) = causes(found)
    assert cause.nodes == tuple(states) and cause.follows == ("cabling",)
    assert "leaf0 Ethernet1/1, leaf0 Ethernet1/2, leaf0 Ethernet1/3" in cause.text
    for words in ("leaf0 Ethernet1/2 ends at node01 ens0np0", "leaf0 Ethernet1/1 ends at node03 ens0np0"):
        assert words in cause.finding.evidence
    one_way = {"node01": states["node01"], "node02": node(2), "node03": node(3)}
    assert not swapped(one_way, dict.fromkeys(states, wanted)), "an end that another node has as well is no swap"
    open_chain = {"node01": states["node01"], "node02": states["node02"], "node03": node(3)}
    assert not swapped(open_chain, dict.fromkeys(states, wanted)), "two cables in a row are no circle"


def test_a_node_s_agent_has_its_own_cables(wanted: DesiredState) -> None:
    document = compiled("node02", wanted, healthy().account, "")
    assert list(document["desired"]["rdma"]["cabling"]) == ["node02"] and "neighbours" in document["asked"]
    assert DesiredState.model_validate(document["desired"] | {"gpu": wanted.gpu}).rdma.cabling is not None


def test_a_plan_is_a_file_of_a_bounded_size(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "wide.csv").write_text(plan() + "x" * 200_000 + ",a,b,c\n")
    for name, words in (("pipe", "it is no file"), ("/dev/zero", "it is no file"), ("wide.csv", "field larger than")):
        with pytest.raises(DesiredStateError, match=words):
            resolved(rdma={"cabling": str(tmp_path / name)})
    with pytest.raises(DesiredStateError, match="determine home directory"):
        resolved(rdma={"cabling": "~nosuchuser/x.csv"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("node,port\nnode01,ens1\n", "lacks the columns switch, switch_port"),
        (HEADER.replace(",", ";"), "wanted is node,port,switch,switch_port, with commas"),
        (HEADER, "no cable"),
        (HEADER + "node01,ens1,leaf1,\n", "line 2: a cell is empty"),
        (HEADER + "node01,ens1,leaf1,1\nnode01,ens1,leaf1,2\n", "line 3: node01 ens1 stands there twice"),
        (HEADER + "node01,ens1,leaf1,1\nnode02,ens1,Leaf1,1\n", "line 3: Leaf1 1 is the end of node01 ens1 too"),
    ],
)
def test_a_plan_that_cannot_be_used_is_refused_by_its_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "plan.csv").write_text(text)
    with pytest.raises(DesiredStateError, match=words):
        resolved(rdma={"cabling": str(tmp_path / "plan.csv")})
    with pytest.raises(DesiredStateError, match="No such file"):
        resolved(rdma={"cabling": str(tmp_path / "none.csv")})


def test_a_plan_as_spreadsheets_write_it(tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_bytes("\ufeffNode, Port ,Switch,switch_port,Note\r\nnode01,ens1,leaf1,Ethernet1/1,\r\n".encode())
    assert resolved(rdma={"cabling": str(plan)}).rdma.cabling == {"node01": {"ens1": ["leaf1", "Ethernet1/1"]}}
    plan.write_text(HEADER + "node01,ens1,leaf1,1\n", "utf-16")
    with pytest.raises(DesiredStateError, match=r"plan\.csv: .*can't decode"):
        resolved(rdma={"cabling": str(plan)})


# -------------------------------------------------------------------------------------------------- a real lldpd

ROOT = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("lldpd"), reason="only root has namespaces, with lldpd")
_DAEMON = "hostname {name}; mount -t tmpfs run /run; mkdir /run/lldpd; exec lldpd -d -u {folder}/{name} -O /dev/null"


@pytest.fixture
def daemons() -> Iterator[Path]:
    """A node and a switch in namespaces of their own, over two veth cables: rel0 to port0, rel1 to port1."""
    tmp_path = Path(tempfile.mkdtemp(prefix="sdlldp-"))
    tmp_path.chmod(0o755)  # lldpd gives up root
    pids: list[subprocess.Popen[bytes]] = []
    inner: list[str] = []  # each is the first process of its namespace, with which all others end
    try:
        for name in ("sdnode", "sdleaf"):
            words = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c"]
            pids.append(
                subprocess.Popen([*words, _DAEMON.format(name=name, folder=tmp_path)], stderr=subprocess.DEVNULL)
            )
            wait_for(partial(answers, tmp_path / name))
            inner += subprocess.check_output(["pgrep", "-P", str(pids[-1].pid)], text=True).split()[:1]
        for number in (0, 1):
            ends = [
                "ip",
                "link",
                "add",
                f"rel{number}",
                "netns",
                inner[0],
                "type",
                "veth",
                "peer",
                "name",
                f"port{number}",
            ]
            subprocess.run([*ends, "netns", inner[1]], check=True)
            for pid, link in zip(inner, (f"rel{number}", f"port{number}"), strict=True):
                subprocess.run(["nsenter", "-t", pid, "-n", "ip", "link", "set", link, "up"], check=True)
        for name in ("sdnode", "sdleaf"):
            for setting in ("tx-interval 1", "portidsubtype ifname"):
                control(tmp_path / name, "configure", "lldp", *setting.split())
        yield tmp_path
    finally:
        for pid in inner:
            os.kill(int(pid), signal.SIGKILL)
        for process in pids:
            process.kill()
            process.wait()
        shutil.rmtree(tmp_path)


def control(socket: Path, *words: str) -> str:
    return subprocess.run(["lldpcli", "-u", socket, *words], capture_output=True, text=True, check=True).stdout


def answers(socket: Path) -> bool:
    words = ["lldpcli", "-u", socket, "show", "configuration"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def wait_for(condition: Any) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)


@ROOT
def test_a_real_lldpd_tells_the_neighbours_and_forgets_them(daemons: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "usr/sbin").mkdir(parents=True)
    lldpcli = root / "usr/sbin/lldpcli"
    lldpcli.write_text(f'#!/bin/sh\nexec lldpcli -u {daemons}/sdnode "$@"\n')
    lldpcli.chmod(0o755)

    def ends() -> set[tuple[str, str, str]]:
        found = interfaces.read_neighbours(Tree(str(root)))
        NodeState.model_validate({**healthy().model_dump(), "neighbours": found})
        return {(part["interface"], part["system"], part["port"]) for part in found}

    wait_for(lambda: ends() == {("rel0", "sdleaf", "port0"), ("rel1", "sdleaf", "port1")})
    control(daemons / "sdleaf", "configure", "ports", "port1", "lldp", "status", "disabled")
    wait_for(lambda: ends() == {("rel0", "sdleaf", "port0")})
    control(daemons / "sdleaf", "configure", "ports", "port0", "lldp", "status", "disabled")
    wait_for(lambda: not ends())
    assert json.loads(control(daemons / "sdnode", "-f", "json0", "show", "neighbors"))
    lldpcli.write_text("#!/bin/sh\necho '[WARN/control] unable to connect to socket /run/lldpd.socket' >&2; exit 1\n")
    with pytest.raises(Unreadable, match="unable to connect"):
        interfaces.read_neighbours(Tree(str(root)))
