"""RoCE's lossless settings: what the kernel tells of them, and what is made of it."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shakedown.checks import lossless as checks
from shakedown.checks.fleet import outliers
from shakedown.desired.models import DesiredState
from shakedown.node import rdma
from shakedown.node.tree import Tree
from shakedown.state.findings import Finding, Verdict
from tests.node_trees import make_tree
from tests.states import desired, healthy, unreadable, with_

ROOT = Path(__file__).parents[2]
OUR_READER = "import json, sys; from shakedown.node import rdma; print(json.dumps(rdma.ask_dcb('lo')))"
OUR_SAMPLER = (
    "import json; from shakedown.node.tree import Tree\n"
    "from shakedown.node.telemetry.machine import Counters\n"
    "source = Counters(Tree('/'), 'lo'); print(json.dumps([source.names, source.read()]))"
)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/dcb/dcb.c: a kernel whose NICs know DCB."""
    library = tmp_path_factory.mktemp("dcb") / "dcb.so"
    command = ["gcc", "-O1", "-shared", "-fPIC", "-o", str(library), str(ROOT / "tests/dcb/dcb.c"), "-ldl"]
    subprocess.run(command, check=True)
    return library


def under(kernel: Path, *command: str, **more: str) -> Any:
    environment = {**os.environ, **more, "LD_PRELOAD": str(kernel)}
    done = subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout)


def test_our_reader_and_iproute2_s_read_the_same(kernel: Path) -> None:
    ours = under(kernel, sys.executable, "-c", OUR_READER)
    flow = under(kernel, "dcb", "-j", "-s", "pfc", "show", "dev", "lo")
    app = under(kernel, "dcb", "-j", "-N", "app", "show", "dev", "lo")
    assert ours["pfc"] == [3, 5] == [number for number, on in enumerate(flow["prio_pfc"]) if on]
    assert ours["pauses"] == {"tx": flow["requests"], "rx": flow["indications"]} and sum(flow["requests"]) == 42
    assert ours["dscp"] == {str(dscp): priority for dscp, priority in app["dscp_prio"]} == {"26": 3, "48": 7}
    assert ours["trust"] is None
    assert under(kernel, sys.executable, "-c", OUR_READER, DCB_TRUST="1")["trust"] == ["dscp"]


def test_pauses_are_sampled_where_the_driver_counts_them(kernel: Path) -> None:
    names, values = under(kernel, sys.executable, "-c", OUR_SAMPLER)
    assert {name: value for name, value in values.items() if name.startswith("net/lo/pauses")} == {
        "net/lo/pauses_rx": 17,
        "net/lo/pauses_tx": 42,
    }
    assert set(names) >= {"net/lo/pauses_rx", "net/lo/pauses_tx"}


def test_an_interface_whose_driver_knows_nothing_of_it_has_none() -> None:
    part = rdma.read_lossless(Tree("/"), "rxe0", "0000:01:00.0", "lo")
    assert part["pfc"]["unreadable"] == part["dscp"]["unreadable"] == "missing" and "DCB of lo" in part["pfc"]["detail"]


@given(st.binary(max_size=400), st.booleans())
def test_no_answer_of_a_kernel_ends_the_reading(octets: bytes, right: bool) -> None:
    answer = struct.pack("=IHHII", 16 + len(octets), 78, 0, 1, 0) + octets if right else octets
    try:
        found = rdma.parse_dcb(answer)
    except (ValueError, OSError, struct.error):
        return
    assert set(found) == {"pfc", "pauses", "dscp", "trust"}


def test_congestion_control_is_read_from_the_driver_s_own_folder(tmp_path: Path) -> None:
    make_tree(tmp_path, gpu="mi300x", nic="thor2", gid_entries=16)
    device = next(part for part in rdma.read(Tree(str(tmp_path)))[0] if part["name"] == "bnxt_re2")
    assert device["lossless"]["congestion"] == {"enable_cc": 1, "tos_ecn": 1, "tos_dscp": 26, "cc_mode": 1}
    assert device["lossless"]["pfc"] == [3]


@pytest.mark.parametrize("open_one", [False, True])
def test_a_folder_that_is_closed_to_this_user_is_told_as_that_unless_another_one_tells(
    tmp_path: Path, open_one: bool
) -> None:
    class Closed(Tree):
        def names(self, path: str) -> list[str]:
            if path.startswith("/sys/kernel/debug"):
                raise PermissionError(13, "Permission denied", path)
            return super().names(path)

    folder = tmp_path / "sys/kernel/config/bnxt_re/bnxt_re0/ports/1/cc"
    folder.mkdir(parents=True)
    (folder / ("ecn_enable" if open_one else "unheard_of")).write_text("1\n")
    found = rdma.read_lossless(
        Closed(str(tmp_path)), "bnxt_re0", "0000:01:00.0", {"unreadable": "missing", "detail": "x"}
    )
    assert found["pfc"] == found["trust"] == {"unreadable": "missing", "detail": "x"}, "no interface is known"
    if open_one:
        assert found["congestion"] == {"ecn_enable": 1}
    else:
        assert found["congestion"]["unreadable"] == "not permitted" and "mlx5" in found["congestion"]["detail"]


def test_a_driver_that_tells_no_flow_control_is_not_one_that_has_it_off(tmp_path: Path) -> None:
    (tmp_path / "recorded.json").write_text('{"dcb ens1": {"pfc": null, "dscp": {}, "trust": null}}')
    part = rdma.read_lossless(Tree(str(tmp_path)), "bnxt_re0", "0000:01:00.0", "ens1")
    assert part["pfc"]["unreadable"] == "missing" and part["dscp"] == {}


def test_a_driver_without_such_a_folder_is_told_as_that(tmp_path: Path) -> None:
    make_tree(tmp_path, gpu="mi300x", nic="ainic", gid_entries=16)
    congestion = rdma.read(Tree(str(tmp_path)))[0][0]["lossless"]["congestion"]
    assert congestion["unreadable"] == "missing" and "/sys/kernel/debug/mlx5/" in congestion["detail"]


def verdict(check: Any, site: dict[str, Any], changes: dict[Any, Any]) -> Finding | None:
    want = desired(rdma=site)
    result: Finding | None = check(want, with_(healthy(), changes), "node01")
    return result


PORT = "rdma.4.lossless"


@pytest.mark.parametrize(
    ("check", "site", "changes", "said", "named"),
    [
        ("rdma_pfc", {"pfc": [3]}, {}, "ok", [3]),
        ("rdma_pfc", {"pfc": [3]}, {f"{PORT}.pfc": []}, "fail", {"bnxt_re4": []}),
        ("rdma_pfc", {"pfc": [3]}, {f"{PORT}.pfc": [3, 4]}, "fail", {"bnxt_re4": [3, 4]}),
        ("rdma_pfc", {"pfc": [3]}, {f"{PORT}.pfc": unreadable("missing", "DCB of ens4")}, "unknown", None),
        ("rdma_pfc", {"pfc": [3]}, {PORT: unreadable("timed out")}, "unknown", None),
        ("rdma_pfc", {}, {f"{PORT}.pfc": [5]}, "warn", {"bnxt_re4": [5]}),
        ("rdma_pfc", {}, {f"{PORT}.pfc": unreadable("missing")}, None, None),
        ("rdma_pfc", {}, {}, None, None),
        ("rdma_dscp", {"dscp": {"26": 3}}, {f"{PORT}.dscp": {"26": 3, "8": 1}}, "ok", None),
        ("rdma_dscp", {"dscp": {"26": 3}}, {f"{PORT}.dscp": {"26": 4}}, "fail", {"bnxt_re4": {"26": 4}}),
        ("rdma_dscp", {"dscp": {"26": 3}}, {f"{PORT}.trust": ["pcp"]}, "fail", {"bnxt_re4": "trusts pcp"}),
        ("rdma_dscp", {"dscp": {"26": 3}}, {f"{PORT}.trust": ["dscp", "pcp"]}, "ok", None),
        ("rdma_dscp", {"dscp": {"26": 3}}, {f"{PORT}.trust": []}, "fail", {"bnxt_re4": "trusts nothing"}),
        ("rdma_dscp", {"dscp": {"26": 3}}, {f"{PORT}.dscp": unreadable("missing")}, "unknown", None),
        ("rdma_pfc", {"pfc": [3]}, {"rdma": unreadable("timed out")}, "unknown", None),
        ("rdma_pfc", {}, {"rdma": unreadable("timed out")}, None, None),
        ("rdma_pfc", {"pfc": [3]}, {"rdma": []}, "unknown", None),
        ("rdma_pfc", {}, {f"rdma.{index}.lossless": unreadable("missing") for index in range(8)}, None, None),
        ("rdma_pfc", {"pfc": [3]}, {f"{PORT}.pfc": [], "rdma.4.link_layer": "InfiniBand"}, "ok", [3]),
        ("rdma_dscp", {}, {f"{PORT}.dscp": {}}, "warn", {"bnxt_re4": {}}),
        ("rdma_congestion", {"congestion": {"enable_cc": 1}}, {}, "ok", {"enable_cc": 1}),
        (
            "rdma_congestion",
            {"congestion": {"enable_cc": 1}},
            {f"{PORT}.congestion": {"enable_cc": 0}},
            "fail",
            {"bnxt_re4": {"enable_cc": 0}},
        ),
        (
            "rdma_congestion",
            {"congestion": {"enable_cc": 1}},
            {f"{PORT}.congestion": unreadable("not permitted", "/sys/kernel/debug")},
            "unknown",
            None,
        ),
    ],
)
def test_verdicts(check: str, site: dict[str, Any], changes: dict[Any, Any], said: str | None, named: Any) -> None:
    finding = verdict(getattr(checks, check), site, changes)
    assert (finding and finding.verdict.value) == said
    if finding and named is not None:
        assert finding.actual == named
    if said in ("fail", "warn"):
        assert finding and finding.remedy


def test_a_parameter_that_the_driver_does_not_show_is_not_known() -> None:
    finding = verdict(checks.rdma_congestion, {"congestion": {"np_cnp_dscp": 48}}, {})
    assert finding and finding.verdict is Verdict.UNKNOWN and "np_cnp_dscp" in finding.evidence
    both = verdict(checks.rdma_congestion, {"congestion": {"np_cnp_dscp": 48, "enable_cc": 0}}, {})
    assert both and both.verdict is Verdict.FAIL


def test_a_parameter_that_nobody_reads_is_refused_before_any_connection() -> None:
    with pytest.raises(ValidationError, match=r"rdma.congestion.*\n.*enable_cc, ecn_enable"):
        DesiredState.model_validate(
            {**desired().model_dump(), "rdma": {**desired().rdma.model_dump(), "congestion": {"enabel_cc": 1}}}
        )


def test_infiniband_ports_have_nothing_to_set() -> None:
    changes = {f"rdma.{index}.link_layer": "InfiniBand" for index in range(8)}
    finding = verdict(checks.rdma_pfc, {"pfc": [3]}, changes)
    assert finding and "InfiniBand" in finding.evidence and finding.verdict is Verdict.OK


def test_the_node_whose_ports_are_set_otherwise_is_the_odd_one() -> None:
    states = {f"node{number}": healthy(number) for number in (1, 2, 3)}
    states["node2"] = with_(
        states["node2"], {"rdma.7.lossless.pfc": [], "rdma.1.lossless.congestion": {"enable_cc": 0}}
    )
    found = {(finding.node, finding.name) for finding in outliers(states, {}, {}) if finding.verdict is Verdict.FAIL}
    assert found == {("node2", "fleet.nic_pfc"), ("node2", "fleet.nic_congestion")}


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({f"rdma.{index}.lossless.pfc": unreadable("not permitted") for index in range(8)}, Verdict.UNKNOWN),
        ({f"rdma.{index}.lossless.pfc": unreadable("missing") for index in range(8)}, Verdict.UNKNOWN),
        ({"rdma.3.lossless.pfc": unreadable("timed out")}, Verdict.UNKNOWN),
        ({"rdma.3.lossless.pfc": unreadable("missing")}, Verdict.FAIL),
        ({"rdma.3.lossless.congestion.enable_cc": unreadable("timed out")}, Verdict.UNKNOWN),
    ],
)
def test_a_node_that_does_not_tell_what_others_tell_is_not_equal(changes: dict[Any, Any], verdict: Verdict) -> None:
    states = {f"node{number}": healthy(number) for number in (1, 2, 3)}
    states["node2"] = with_(states["node2"], changes)
    found = [(finding.node, finding.verdict) for finding in outliers(states, {}, {}) if "fleet.nic_" in finding.name]
    assert found == [("node2", verdict)]


def test_where_no_node_tells_it_nothing_is_compared() -> None:
    changes = {f"rdma.{index}.lossless": unreadable("missing") for index in range(8)}
    states = {f"node{number}": with_(healthy(number), changes) for number in (1, 2)}
    assert not [finding for finding in outliers(states, {}, {}) if "nic_pfc" in f"{finding.name} {finding.evidence}"]
