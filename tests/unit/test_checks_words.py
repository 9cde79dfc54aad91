"""What a finding says beside its verdict: where it was read, what the next boot has, and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from shakedown.checks import evaluate
from shakedown.checks.fleet import outliers
from shakedown.desired.models import DesiredState
from shakedown.state.findings import Finding, Verdict
from tests.states import CMDLINE, GIB, desired, healthy, unreadable, with_


def finding(name: str, changes: dict[Any, Any] | None = None, want: DesiredState | None = None) -> Finding:
    return next(each for each in findings(changes, want) if each.name == name)


def findings(changes: dict[Any, Any] | None = None, want: DesiredState | None = None) -> list[Finding]:
    return evaluate(want or desired(), with_(healthy(), changes or {}), "node01")


def test_a_group_tells_what_the_next_login_has() -> None:
    want = desired(tuning={"groups": ["render"]})
    ada = {"account.user": "ada", "account.groups": ["ada"], "account.at_login": ["render"]}
    assert finding("groups.render", ada, want).persisted == "member"
    assert finding("groups.render", {**ada, "account.at_login": []}, want).persisted is None


def test_the_command_line_tells_what_is_lacking_where() -> None:
    right = finding("cmdline")
    assert (right.evidence, right.persisted) == ("/proc/cmdline has them all", CMDLINE)
    forgotten = finding("cmdline", {"cmdline.persisted": CMDLINE[:-1]})
    assert forgotten.evidence == "/proc/cmdline has them all; the boot loader (grub-dropin) lacks amd_iommu=on"
    assert forgotten.persisted == CMDLINE[:-1]
    new = finding("cmdline", {"cmdline.running": CMDLINE[1:], "cmdline.persisted": unreadable("malformed")})
    assert new.evidence.startswith("/proc/cmdline lacks pci=realloc=off; boot loader: ") and new.persisted is None


def test_a_variable_made_for_other_gpus_tells_whose_it_is() -> None:
    variable = {"HSA_ENABLE_SDMA": "0"}
    site = desired(smoke={"recipe": "gpt-small", "environment": variable})
    profile = desired(gpu={"profile": "mi300x", "environment": variable})
    for want, whose in ((site, "smoke"), (profile, "gpu")):
        found = [each for each in findings(want=want) if each.name == "environment.HSA_ENABLE_SDMA"]
        assert [each.evidence.partition(".")[0] for each in found] == [whose]


# ------------------------------------------------------------------------------------------------------------- GPUs


def test_the_least_memory_and_the_least_rocm_are_enough() -> None:
    want = desired(gpu={"profile": "mi300x", "vram_bytes": 50 * GIB, "rocm_min": "6.4.1"})
    sizes = {f"gpus.{index}.vram_bytes": 49 * GIB for index in range(8)}
    assert finding("gpu_model.vram", sizes, want).verdict == "ok", "the driver may show 2 % less than the data sheet"
    assert finding("gpu_model.vram", {**sizes, "gpus.3.vram_bytes": 49 * GIB - 1}, want).verdict == "fail"
    assert finding("rocm_version", {"rocm_version": "6.4.1"}, want).verdict == "ok"


def test_gpus_that_need_no_rocm_need_no_library_either() -> None:
    names = {each.name for each in findings(want=desired(gpu={"profile": "mi300x", "rocm_min": None}))}
    assert "gpu_count" in names and not {"gpu_tool", "rocm_version"} & names


def test_a_number_tells_what_it_counts_and_where_it_was_read() -> None:
    assert finding("kfd_topology").unit == "GPU nodes"
    cpx = desired(gpu={"profile": "mi300x", "compute_partition": "CPX"})
    assert finding("kfd_topology", {"kfd.gpu_nodes": 64}, cpx).unit == "GPUs, in CPX"
    assert finding("rocm_version").evidence == "/opt/rocm/.info/version"
    assert "missing" in finding("rocm_version", {"rocm_version": unreadable("missing")}).evidence


# ------------------------------------------------------------------------------------------------------------ fleet


def fleet(*changes: dict[Any, Any], group: str = "rack7", clocks: Any = None) -> list[Finding]:
    states = {f"node{n:02d}": with_(healthy(n), each) for n, each in enumerate(changes, start=1)}
    return outliers(states, dict.fromkeys(states, group), dict.fromkeys(states, desired()), clocks)


def test_what_was_compared_is_told_with_whom() -> None:
    equal = fleet({}, {})[0]
    assert (equal.wanted, equal.actual) == ("as the other nodes of rack7", "as they are")
    assert fleet({}, {}, group="")[0].wanted == "as the other nodes"


def test_an_odd_one_out_is_told_what_to_become_and_a_tie_who_decides() -> None:
    abi = {"verbs.abi": 59}
    (odd,) = [each for each in fleet({}, {}, abi) if each.name == "fleet.libibverbs"]
    assert (odd.wanted, odd.actual) == ("provider ABI 34", "provider ABI 59")
    assert odd.remedy is not None
    assert odd.remedy.text == "bring libibverbs to provider ABI 34, as on node01, node02"
    for group, where in (("rack7", "rack7"), ("", "all nodes")):
        tie = next(each for each in fleet({}, abi, group=group) if each.name == "fleet.libibverbs")
        assert tie.wanted == f"one value on {where}, there is no majority"
        assert tie.remedy is not None and "decide which value of libibverbs is right" in tie.remedy.text


def test_firmware_that_one_gpu_does_not_tell_is_compared_by_the_others() -> None:
    """The block that is known is unknown there, and that it was read at all is no second finding."""
    found = fleet({}, {"gpus.7.firmware": unreadable("failed")})
    assert [each.name for each in found if each.verdict == "unknown" and each.node == "node02"] == [
        "fleet.gpu_firmware.smc",
        "fleet.gpu_firmware.vbios",
    ]


@pytest.mark.parametrize(
    ("offsets", "error", "node", "verdict", "actual", "remedy"),
    [
        ((5.0, 5.0, 5.0, 35.0), 0.0, 4, Verdict.OK, 30.0, None),
        ((5.0, 5.0, 5.0, 36.0), 0.0, 4, Verdict.FAIL, 31.0, "step its clock"),
        ((5.0, 5.0, 5.0, 36.0), 20.0, 4, Verdict.UNKNOWN, 31.0, "read it again"),
        ((5.0, 5.0, 5.0, 36.0), 0.0, 1, Verdict.OK, 0.0, None),
    ],
)
def test_a_clock_tells_how_far_it_is_from_the_others(offsets, error, node, verdict, actual, remedy) -> None:
    clocks = {f"node{n:02d}": (offset, error) for n, offset in enumerate(offsets, start=1)}
    found = [each for each in fleet({}, {}, {}, {}, clocks=clocks) if each.name == "fleet.clock_skew"][node - 1]
    assert (found.verdict, found.actual) == (verdict, actual)
    assert f"{max(offsets) - min(offsets):.3f} s apart" in found.evidence
    assert (found.remedy is None) == (remedy is None)
    assert remedy is None or (found.remedy is not None and remedy in found.remedy.text)


# ------------------------------------------------------------------------------------------------- machine, modules


def test_what_is_right_needs_no_remedy() -> None:
    want = desired(system={"memory": "100G", "container_engine": "any"}, tuning={"modules": ["amdgpu"]})
    assert {each.name: each.remedy for each in findings(want=want) if each.verdict == "ok" and each.remedy} == {}


def test_just_enough_memory_and_disk_is_enough() -> None:
    want = desired(system={"memory": 100 * GIB, "disk_free": {"/": 700 * GIB}})
    assert finding("memory", {"memory.total_bytes": 90 * GIB}, want).verdict == "ok", "a tenth is the firmware's"
    assert finding("memory", {"memory.total_bytes": 90 * GIB - 1}, want).verdict == "fail"
    assert finding("disk_free./", want=want).verdict == "ok"
    assert finding("disk_free./", {"disks.0.free_bytes": 700 * GIB - 1}, want).verdict == "fail"


def test_an_engine_tells_which_were_good_and_what_was_seen() -> None:
    gone = {"containers.engine": unreadable("missing", "no docker, no podman")}
    for asked, label in (("any", "docker or podman"), ("podman", "podman")):
        found = finding("container_engine", gone, desired(system={"container_engine": asked}))
        assert (found.wanted, found.actual) == (label, "none")
        assert "no docker, no podman" in found.evidence
        assert found.remedy is not None and found.remedy.text.startswith(f"install {label} ")
    assert (finding("container_engine").evidence, finding("container_engine").actual) == ("", "docker 27.5.1")


def test_a_clock_tells_its_service_and_its_offset() -> None:
    assert finding("clock").evidence == "chrony, offset +0.000000 s"
    assert finding("clock", {"clock.offset_s": unreadable("missing")}).evidence == "chrony"


def test_a_blacklisted_module_without_systemd_is_a_persons_work_once_it_is_loaded() -> None:
    changes = {"modules.blacklisted": ["amdgpu"], "boot_unit.enabled": False, "system.service_manager": "other"}
    assert finding("modules.amdgpu", changes).remedy.operation is None
    assert finding("modules.amdgpu", {**changes, "modules.loaded": []}).remedy.operation == "boot.settings"


# --------------------------------------------------------------------------------------------------------- provider

PATH = "/usr/local/lib/libbnxt_re-rdmav34.so"


def provider(**more: Any) -> DesiredState:
    return desired(rdma={"family": "thor2", "provider": more}, nic=None)


def test_a_provider_library_is_shown_with_what_tells_it_from_the_wanted() -> None:
    assert (finding("provider_library").wanted, finding("provider_library").actual) == (PATH, PATH)
    none = finding("provider_library", {"verbs.providers": []})
    assert (none.wanted, none.actual) == (PATH, "none")
    build = finding("provider_library", want=provider(sha256="cd" * 32, source="files/libbnxt_re.so"))
    assert build.wanted == f"{PATH} of ABI 34, sha256 {'cd' * 32}"
    assert build.actual == f"{PATH} of ABI 34, sha256 {'ab' * 32}"
    assert build.remedy is not None and build.remedy.operation == "provider.library"
    assert finding("provider_library", {"verbs.providers": []}, provider(sha256="cd" * 32)).actual == "none"
    dangling = {"verbs.providers.0.sha256": unreadable("missing"), "verbs.providers.0.target": "/gone"}
    found = finding("provider_library", dangling)
    assert (found.wanted, found.actual) == (f"{PATH} of ABI 34", f"{PATH} -> /gone")
    other = {"verbs.providers.0.path": PATH.replace("34", "59"), "verbs.providers.0.abi": 59}
    assert finding("provider_library", other).actual == PATH.replace("34", "59")


def test_a_driver_file_is_shown_and_what_stands_there_instead() -> None:
    right = finding("provider_driver")
    file = "/etc/libibverbs.d/bnxt_re.driver"
    assert (right.actual, right.evidence) == (file, f"files of libibverbs.d: {file}")
    none = finding("provider_driver", {"verbs.drivers": {}})
    assert (none.actual, none.evidence) == ("not named", "files of libibverbs.d: none")
