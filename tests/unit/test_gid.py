"""Which GID index is derived from which table."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from shakedown.node.rdma import mapped_ipv4
from shakedown.state.gid import NoGid, addresses_of, gid_index
from shakedown.state.node import RdmaDevice
from tests.states import hca, healthy, unreadable, with_


def device(**changes: Any) -> RdmaDevice:
    return RdmaDevice.model_validate({**hca(0), **changes})


def entry(index: int, address: str, kind: Any = "RoCE v2", netdev: str = "ens0np0") -> dict[str, Any]:
    packed = "".join(f"{int(part):02x}" for part in address.split("."))
    gid = f"0000:0000:0000:0000:0000:ffff:{packed[:4]}:{packed[4:]}"
    return {"index": index, "gid": gid, "type": kind, "netdev": netdev, "ipv4": address}


def test_the_roce_v2_entry_of_the_interface_address_is_taken_wherever_it_stands() -> None:
    assert gid_index(device(), ["10.1.0.1/24"]) == 3
    assert gid_index(device(gids=[entry(1, "10.1.0.1")]), ["10.1.0.1"]) == 1


def test_an_entry_of_another_address_or_of_roce_v1_is_not_taken() -> None:
    result = gid_index(device(gids=[entry(2, "10.1.0.1", "IB/RoCE v1"), entry(5, "10.9.0.1")]), ["10.1.0.1"])
    assert isinstance(result, NoGid) and not result.unread
    assert "no RoCE v2 GID for 10.1.0.1" in result.reason and "2: 10.1.0.1 IB/RoCE v1" in result.reason


def test_of_two_addresses_the_first_of_the_interface_is_preferred() -> None:
    moved = device(gids=[entry(3, "10.1.0.99"), entry(7, "10.1.0.1")])
    assert gid_index(moved, ["10.1.0.1/24", "10.1.0.99/24"]) == 7
    assert gid_index(moved, ["10.1.0.99/24", "10.1.0.1/24"]) == 3


def test_what_could_not_be_read_is_told_apart_from_what_is_not_there() -> None:
    table = gid_index(device(gids=unreadable("timed out", "gids")), ["10.1.0.1"])
    kind = gid_index(device(gids=[entry(4, "10.1.0.1", unreadable("malformed"))]), ["10.1.0.1"])
    assert isinstance(table, NoGid) and table.unread
    assert isinstance(kind, NoGid) and kind.unread and "GID 4" in kind.reason


def test_an_interface_without_an_address_is_named() -> None:
    local = {
        "index": 1,
        "gid": "fe80:0000:0000:0000:0000:00ff:fe00:0001",
        "type": "RoCE v2",
        "netdev": "ens0np0",
        "ipv4": None,
    }
    result = gid_index(device(gids=[entry(3, "10.1.0.1"), local]), [])
    assert isinstance(result, NoGid) and "ens0np0 has no address that is routed" in result.reason


TABLES = tomllib.loads((Path(__file__).parents[1] / "data" / "machines" / "gids.toml").read_text())["table"]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: str(table["machine"]))
def test_tables_of_real_machines(table: dict[str, Any]) -> None:
    found = [
        {"index": index, "gid": gid, "type": kind, "netdev": "ens0np0", "ipv4": mapped_ipv4(gid)}
        for index, gid, kind in table["rows"]
    ]
    result = gid_index(device(gids=found), table["addresses"])
    assert result == table["index"] if "index" in table else isinstance(result, NoGid)


def test_a_type_of_an_ipv6_entry_that_could_not_be_read_leaves_it_open() -> None:
    routed = {"index": 3, "gid": "fd93:16d3:59b6::1", "netdev": "ens0np0", "ipv4": None}
    result = gid_index(device(gids=[{**routed, "type": unreadable("malformed")}]), [])
    assert isinstance(result, NoGid) and result.unread


def test_an_infiniband_port_uses_its_own_gid() -> None:
    assert gid_index(device(link_layer="InfiniBand"), []) == 0


def test_addresses_of_the_own_interface_come_before_those_of_a_vlan_on_it() -> None:
    vlan = {**healthy().interfaces[1].model_dump(), "name": "ens0np0.100", "ipv4": ["10.100.0.1/24"]}  # type: ignore[index]
    plain = with_(healthy(), {})
    interfaces = [*plain.model_dump()["interfaces"], vlan]
    gids = [*hca(0)["gids"], entry(5, "10.100.0.1", netdev="ens0np0.100")]
    state = with_(plain, {"interfaces": interfaces, "rdma.0.gids": gids})
    assert addresses_of(state.rdma[0], state.interfaces) == ["10.1.0.1/24", "10.100.0.1/24"]  # type: ignore[index, arg-type]

    bare_parent = with_(state, {"interfaces.1.ipv4": []})
    addresses = addresses_of(bare_parent.rdma[0], bare_parent.interfaces)  # type: ignore[index, arg-type]
    assert gid_index(bare_parent.rdma[0], addresses) == 5  # type: ignore[index]


def test_an_entry_of_an_interface_that_is_gone_gives_no_address() -> None:
    table = [entry(3, "10.1.0.1"), entry(5, "10.2.0.1", netdev="ens0np0.7")]
    state = with_(healthy(), {"rdma.0.gids": table})
    assert addresses_of(state.rdma[0], state.interfaces) == ["10.1.0.1/24"]  # type: ignore[index, arg-type]
