"""The probe's document is what state.py says, on this very machine: as root and as an ordinary user."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from shakedown.state.node import NodeState, is_unreadable, shared
from shakedown.transport import bundle
from tests.states import healthy, with_


def installed(*prefix: str) -> NodeState:
    """What the probe prints when it arrives in its bundle."""
    run = subprocess.run(
        [*prefix, "sh", "-c", bundle.install_command()],
        input=bundle.build().archive,
        capture_output=True,
        text=True,
        cwd="/",
        timeout=60,
    )
    assert run.returncode == 0 and run.stderr == "", run.stderr
    assert run.stdout.count("\n") == 1
    return NodeState.model_validate_json(run.stdout, strict=True)


def test_this_machine_as_the_user_of_the_tests() -> None:
    state = installed()
    assert state.probe.uid == os.geteuid()
    assert state.probe.version == bundle.build().digest
    assert state.system.kernel == os.uname().release
    assert state.cpu.count == os.cpu_count()
    assert not is_unreadable(state.interfaces)
    assert any("127.0.0.1/8" in interface.ipv4 for interface in state.interfaces)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert abs(state.memory.total_bytes - memory) < memory / 100


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_an_ordinary_user_without_a_home() -> None:
    before = set(Path("/tmp").iterdir())
    state = installed("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    assert (state.probe.uid, state.account.user) == (65534, "nobody")
    assert not is_unreadable(state.disks) and state.disks
    left = {path for path in set(Path("/tmp").iterdir()) - before if path.stat().st_uid == 65534}
    assert not left, "a node without a home is left as it was"


@pytest.mark.skipif(os.geteuid() != 0, reason="reads as root what others may not")
def test_what_needs_root_says_so() -> None:
    """The kernel's log: root reads it, an ordinary user is told why there is nothing."""
    restricted = Path("/proc/sys/kernel/dmesg_restrict").read_text().strip() == "1"
    expected = "not permitted" if restricted or not Path("/dev/kmsg").stat().st_mode & 0o004 else None
    log = installed("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups").kernel_log
    assert (log.records.unreadable if is_unreadable(log.records) else None) == expected


def test_an_unreadable_dictionary_is_no_dictionary() -> None:
    """Both are JSON objects of texts, and a document comes as JSON text and as Python objects."""
    why = {"unreadable": "timed out", "detail": "amdsmi"}
    state = with_(healthy(), {"gpus.0.firmware": why, "boot_unit.settings": why})
    for again in (state, NodeState.model_validate_json(state.model_dump_json())):
        assert not is_unreadable(again.gpus)
        assert is_unreadable(again.gpus[0].firmware) and is_unreadable(again.boot_unit.settings)


def test_what_states_share_is_equal_and_stays() -> None:
    tool = "/opt/rocm/" + "x" * 90  # longer than what pydantic itself holds once
    document = healthy(1).model_copy(update={"gpu_tool": tool}).model_dump_json()
    first, second = (shared(NodeState.model_validate_json(document, strict=False)) for _ in range(2))
    assert first == second == NodeState.model_validate_json(document, strict=False)
    assert first.model_dump_json() == document
    assert first.gpus[0].model is second.gpus[1].model
    assert first.gpu_tool == tool and first.gpu_tool is second.gpu_tool
    assert (
        first.probe is second.probe
        and first.sysctl["net.ipv4.conf.all.rp_filter"] is second.sysctl["net.ipv4.conf.all.rp_filter"]
    )
    assert first.gpus[0].link is second.gpus[1].link, "equal parts"
    given = first.system.machine_id
    assert shared(with_(healthy(2), {"probe.uid": 7})).probe.uid == 7 and first.system.machine_id == given
    changed = second.model_copy(update={"gpu_tool": "another"})
    assert changed.model_fields_set == second.model_fields_set == first.model_fields_set
