"""Whatever a GID table holds, the index derived from it is usable or there is none."""

from __future__ import annotations

import ipaddress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shakedown.state.gid import gid_index
from shakedown.state.node import RdmaDevice
from tests.states import hca, unreadable

ADDRESSES = ["10.0.0.1", "10.0.0.2", "192.168.1.9"]
KINDS = ["RoCE v2", "IB/RoCE v1", unreadable("malformed")]


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Filled entries at any index, in any order."""
    rows = []
    for index in draw(st.lists(st.integers(0, 1023), unique=True, max_size=12)):
        address = draw(st.sampled_from([None, *ADDRESSES]))
        packed = f"{int(ipaddress.IPv4Address(address)):08x}" if address else ""
        gid = f"0000:0000:0000:0000:0000:ffff:{packed[:4]}:{packed[4:]}" if address else "fe80" + ":0000" * 7
        rows.append(
            {"index": index, "gid": gid, "type": draw(st.sampled_from(KINDS)), "netdev": "ens0np0", "ipv4": address}
        )
    return rows


@given(tables(), st.permutations(ADDRESSES).flatmap(lambda all_: st.integers(0, 3).map(lambda n: all_[:n])))
def test_the_index_is_usable_and_found_whenever_there_is_one(table: list[dict[str, Any]], wanted: list[str]) -> None:
    device = RdmaDevice.model_validate({**hca(0), "gids": table})
    usable = {row["index"]: row for row in table if row["type"] == "RoCE v2" and row["ipv4"] in wanted}
    result = gid_index(device, wanted)
    if isinstance(result, int):
        assert result in usable
        assert wanted.index(usable[result]["ipv4"]) == min(wanted.index(row["ipv4"]) for row in usable.values())
    else:
        assert not usable
        assert result.reason


@given(tables(), st.randoms())
def test_the_order_in_which_the_table_was_read_does_not_matter(table: list[dict[str, Any]], random: Any) -> None:
    shuffled = random.sample(table, len(table))
    one, other = (RdmaDevice.model_validate({**hca(0), "gids": rows}) for rows in (table, shuffled))
    first, second = gid_index(one, ADDRESSES), gid_index(other, ADDRESSES)
    assert type(first) is type(second)
    assert not isinstance(first, int) or first == second
