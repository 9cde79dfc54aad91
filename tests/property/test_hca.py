"""Which RDMA devices are meant has one answer: whatever devices a node has, every check, the counters that a run
watches and the launch plan speak of the same ones."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from shakedown import checks
from shakedown.desired.hca import devices_of, of_family, others_of
from shakedown.desired.models import Rdma
from shakedown.gates.judgement import watched_counters
from shakedown.jobs.plan.network import find_hcas
from shakedown.state.findings import Finding
from shakedown.state.node import NodeState, RdmaDevice
from tests.plans import draft
from tests.states import desired, hca, healthy, interface, with_

NAMES = ["bnxt_re{}", "ens{}f0_rdma", "rocep{}s0", "mlx5_{}", "rxe{}", "irdma{}"]
USUAL = ("bnxt_re", "rdma", "rocep", "roceo")


@st.composite
def devices(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Of any family, under any name; in hardware, software, or a virtual function; with a vendor that was read or not;
    with an interface or not."""
    found = []
    for index in range(draw(st.integers(0, 6))):
        part = hca(index)
        kind = draw(st.sampled_from(["hardware", "hardware", "software", "virtual", "virtual alone"]))
        part["name"] = draw(st.sampled_from(NAMES)).format(index)
        part["vendor"] = draw(st.sampled_from(["14e4", "14e4", "15b3", None])) if kind != "software" else None
        if kind == "software":
            part |= {"bdf": None, "link": None, "driver": None}
        if kind.startswith("virtual"):
            physical = [other["bdf"] for other in found if other["bdf"]]
            here = physical and kind == "virtual"
            part["physical_function"] = draw(st.sampled_from(physical)) if here else "0000:ff:00.0"
        part["ports"] = draw(st.integers(1, 2))
        # Wrong in every respect, so that whoever looks at it has to name it.
        part |= {"state": "DOWN", "phys_state": "Disabled", "rate_gbps": 100.0, "max_read_request": 512}
        part |= {"gids": [], "firmware": f"1.{index}"}
        if draw(st.booleans()):
            part["netdev"] = {"unreadable": "missing", "detail": ""}
        found.append(part)
    return found


def node(parts: list[dict[str, Any]]) -> NodeState:
    interfaces = [interface(f"ens{index}np0", f"10.{index + 1}.0.1/24", 1500) for index in range(8)]
    counters = {f"rdma/{part['name']}/rx_err": 0 for part in parts}
    return with_(healthy(), {"rdma": parts, "interfaces": interfaces, "counters": counters})


def meant(parts: list[dict[str, Any]]) -> set[str]:
    """The definition once more, in the words of the profile: vendor where it is known, else the usual names."""
    here = {part["bdf"] for part in parts if part["bdf"]}
    own = [part for part in parts if part.get("physical_function") not in here]
    return {
        part["name"] for part in own if (part["vendor"] == "14e4" if part["vendor"] else part["name"].startswith(USUAL))
    }


def words(text: object) -> set[str]:
    return set(str(text).replace(",", " ").replace(":", " ").replace(";", " ").replace("(", " ").split())


RENAMED = [{**hca(0), "name": "ens0f0_rdma", "gids": [], "state": "DOWN", "phys_state": "Disabled"}]
RENAMED[0] |= {"rate_gbps": 100.0, "max_read_request": 512, "firmware": "1.0"}


@settings(max_examples=150, deadline=None)
@given(devices())
@example(RENAMED)
def test_everybody_speaks_of_the_same_devices(parts: list[dict[str, Any]]) -> None:
    state, wanted = node(parts), desired()
    names, all_names = meant(parts), {part["name"] for part in parts}
    found: dict[str, Finding] = {}
    for finding in checks.evaluate(wanted, state, "node01"):
        found[finding.name] = finding

    assert found["rdma_count"].actual == len(names)
    for name in ("rdma_state", "rdma_state.link", "rdma_rate", "rdma_gid"):
        assert set(found[name].actual or {}) == names, name
        assert found[name].verdict == ("fail" if names else "unknown")
    with_register = {p["name"] for p in parts if p["name"] in names and p["bdf"] and not p.get("physical_function")}
    assert words(found["max_read_request"].evidence) & all_names == (with_register or names)
    mtu = [finding for name, finding in found.items() if name.partition(".")[0] == "mtu"]
    assert mtu and all(finding.verdict != "ok" for finding in mtu)
    assert set().union(*(words(finding.evidence) & all_names for finding in mtu)) == names
    firmware = {part["firmware"] for part in parts if part["name"] in names}
    assert (found["rdma_firmware"].verdict == "fail") == (len(firmware) > 1)

    watched = watched_counters(wanted, state)
    assert {name.split("/")[1] for name in watched if name.startswith("rdma/")} == names
    planned = draft(wanted, {"node01": state})
    find_hcas(planned, "node01")
    (problem,) = planned.problems
    assert words(problem.value) & all_names == names and problem.value.startswith("0 ACTIVE")


@settings(max_examples=100, deadline=None)
@given(devices())
def test_active_devices_of_the_family_are_the_job_s(parts: list[dict[str, Any]]) -> None:
    own = [{**part, **{key: hca(index)[key] for key in ("state", "gids")}} for index, part in enumerate(parts)]
    names = meant(own)
    wanted = desired(rdma={"count": max(len(names), 1)})
    assert set(find_hcas(draft(wanted, {"node01": node(own)}), "node01").names) == names


@given(devices())
def test_a_device_is_meant_or_it_is_not(parts: list[dict[str, Any]]) -> None:
    every = [RdmaDevice.model_validate(part) for part in parts]
    ours, others = devices_of(desired().rdma, every), others_of(desired().rdma, every)
    assert sorted(d.name for d in [*ours, *others]) == sorted(device.name for device in every)


def one(name: str, vendor: str | None) -> RdmaDevice:
    return RdmaDevice.model_validate({**hca(0), "name": name, "vendor": vendor})


def test_the_site_s_choice_of_names_counts_whatever_the_vendor() -> None:
    chosen = Rdma(count=1, vendor="14e4", devices=["bnxt_re[0-7]"], usual_devices=["bnxt_re*"])
    assert of_family(chosen, one("bnxt_re7", "14e4")) and of_family(chosen, one("bnxt_re7", None))
    assert not of_family(chosen, one("bnxt_re8", "14e4")), "a second NIC of the vendor, for storage"
    assert not of_family(chosen, one("bnxt_re7", "15b3")) and not of_family(chosen, one("bnxt_re8", None))


def test_without_a_vendor_and_without_names_every_device_is_meant() -> None:
    assert of_family(Rdma(count=1), one("anything", "15b3"))
    assert not of_family(Rdma(count=1, usual_devices=["bnxt_re*"]), one("anything", "15b3"))
    assert of_family(Rdma(count=1, usual_devices=["bnxt_re*"]), one("bnxt_re0", "15b3")), "no vendor is asked for"
