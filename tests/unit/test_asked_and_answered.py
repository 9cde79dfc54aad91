"""What a desired state asks for has a finding, whatever the node's state: nothing is silently absent.

Every field of every model is either in ASKED, with a value and the finding that answers it, or in NO_CHECK, with the
reason why no finding could.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from pyinfra.api.exceptions import OperationValueError

from shakedown import checks
from shakedown.checks.examination import Examination, Reading
from shakedown.desired import models
from shakedown.desired.models import DesiredState
from shakedown.desired.problems import DesiredStateError
from shakedown.operations import commands as checked
from shakedown.state.findings import Finding, Verdict
from shakedown.state.node import NodeState
from tests.at_once import at_once
from tests.states import bare, desired, healthy, unreadable, with_
from tests.unit.test_findings_shown import leaves

DIGEST = "sha256:" + "a" * 64

# Dotted path -> what is asked for, and the findings that answer it.
ASKED: dict[str, tuple[Any, list[str]]] = {
    "tuning.numa_balancing": (False, ["numa_balancing"]),
    "tuning.nmi_watchdog": (False, ["nmi_watchdog"]),
    "tuning.cmdline": (["iommu=pt", "{cpu}_iommu=on"], ["cmdline"]),
    "tuning.cpu_governor": ("performance", ["cpu_governor"]),
    "tuning.c2": ("disabled", ["c2"]),
    "tuning.thp": ("always", ["thp"]),
    "tuning.pcie_acs": ("off", ["pcie_acs"]),
    "tuning.memlock": ("unlimited", ["memlock"]),
    "tuning.nofile": (1024, ["nofile"]),
    "tuning.groups": (["render", "domain users"], ["groups.render", "groups.domain users"]),
    "tuning.sysctl": ({"vm.swappiness": 1, "kernel.panic": 1}, ["sysctl.vm.swappiness", "sysctl.kernel.panic"]),
    "tuning.modules": (["nvme", "dm-mod"], ["modules.nvme", "modules.dm_mod"]),
    "gpu.count": (8, ["gpu_count", "gpu_idle", "gpu_ecc", "kfd_topology"]),
    "gpu.name": ("AMD Instinct MI300X", ["gpu_model"]),
    "gpu.pci_ids": (["1002:74a1"], ["gpu_model"]),
    "gpu.vram_bytes": (2**37, ["gpu_model.vram"]),
    "gpu.vram_used_bytes": (2**31, ["gpu_idle.vram"]),
    "gpu.corrected_errors": (0, ["gpu_ecc.corrected"]),
    "gpu.pcie_replays": (0, ["gpu_pcie_replays"]),
    "gpu.link_gts": (32.0, ["gpu_link.speed"]),
    "gpu.link_width": (16, ["gpu_link.width"]),
    "gpu.xgmi_links": (7, ["gpu_xgmi"]),
    "gpu.power_cap_w": (750, ["gpu_power_cap"]),
    "gpu.compute_partition": ("SPX", ["gpu_partition.compute"]),
    "gpu.memory_partition": ("NPS1", ["gpu_partition.memory"]),
    "gpu.rocm_min": ("6.3.0", ["rocm_version"]),
    "gpu.rccl": ("installed", ["rccl"]),
    "gpu.modules": (["amdgpu"], ["modules.amdgpu", "kfd"]),
    "gpu.environment": ({"HSA_ENABLE_SDMA": "0"}, ["environment.HSA_ENABLE_SDMA"]),
    "rdma.count": (8, ["rdma_count", "rdma_state", "rdma_state.link", "rdma_gid", "rdma_firmware", "infiniband"]),
    "rdma.rate_gbps": (400.0, ["rdma_rate"]),
    "rdma.mtu": (9000, ["mtu"]),
    "rdma.link_gts": (32.0, ["rdma_link.speed"]),
    "rdma.link_width": (16, ["rdma_link.width"]),
    "rdma.max_read_request": (4096, ["max_read_request"]),
    "rdma.pfc": ([3], ["rdma_pfc"]),
    "rdma.dscp": ({"26": 3}, ["rdma_dscp"]),
    "rdma.congestion": ({"enable_cc": 1}, ["rdma_congestion"]),
    "rdma.cabling": ({"node": {"ens0np0": ["leaf0", "1"]}}, ["cabling"]),
    "rdma.modules": (["bnxt_re"], ["modules.bnxt_re"]),
    "rdma.provider": ({"name": "bnxt_re"}, ["provider_library"]),
    "rdma.provider.name": ("bnxt_re", ["provider_library"]),
    "rdma.provider.host_library": ("/usr/local/lib/libbnxt_re-rdmav{abi}.so", ["provider_library"]),
    "rdma.provider.source": ("files/libbnxt_re.so", ["provider_library"]),
    "rdma.provider.sha256": ("a" * 64, ["provider_library"]),
    "rdma.provider.config_dirs": (["/etc/libibverbs.d"], ["provider_driver"]),
    "images": ({"one": {"reference": "a/b:1"}, "two": {"reference": f"a/b@{DIGEST}"}}, ["images.one", "images.two"]),
    "system.container_engine": ({"name": "docker"}, ["container_engine"]),
    "system.container_engine.name": ("docker", ["container_engine"]),
    "system.clock_synchronised": (True, ["clock"]),
    "system.clock_skew_s": (30.0, ["fleet.clock_skew"]),
    "system.memory": ("32G", ["memory"]),
    "system.mpi": ("installed", ["mpi"]),
    "system.mounts_answer": (True, ["mounts"]),
    "system.drive_health": (True, ["drive_health"]),
    "system.disk_free": ({"/": "1G", "/data": "1G"}, ["disk_free./", "disk_free./data"]),
    "system.kernel_log_clean": (True, ["kernel_log"]),
    "smoke.recipe": ("stanford-gpt", ["support"]),
    "smoke.environment": ({"NCCL_IB_DISABLE": "1"}, ["environment.NCCL_IB_DISABLE"]),
    "smoke.image": ("one", ["image_version"]),
}

_JOB = "of the job: the plan derives it, tells it, or refuses it"
_PULL = "how an image is pulled"
_REBOOT = "how a node may be rebooted"
_OPERATION = "made and proved by its own operation, whose end the deploy reports; the probe is not told of its paths"
NO_CHECK = {
    "kept_checks": "how many checks stay on the controller; no node has it",
    "reports": "what a run writes on the controller; no node has it",
    "system.container_engine.install": "what a deploy may do where the engine is missing",
    "gpu.profile": "which layer is read; gpu_model compares the hardware with what stands in it",
    "rdma.family": "which layer is read; rdma_count compares the hardware with what stands in it",
    "rdma.devices": "which devices are meant: the findings of the section are of these",
    "rdma.usual_devices": "which devices are meant: the findings of the section are of these",
    "rdma.vendor": "which devices are meant: the findings of the section are of these",
    "rdma.usual_gid_index": "published, not wanted: the table decides, and rdma_gid tells where it differs",
    "rdma.usual_pfc": "published, not wanted: rdma_pfc tells where ports differ from it",
    "rdma.usual_dscp": "published, not wanted: rdma_dscp tells where ports differ from it",
    "rdma.environment": "of the job: the plan shows it",
    "rdma.provider.container_library": "a path in the container",
    "rdma.provider.install_as": "a path in the container",
    "rdma.mounts": "given to the container; the engine refuses a path that is not there",
    "gpu.no_throttling": "of the job: a gate judges its samples",
    "system.reboot": _REBOOT,
    "system.reboot_at_once": _REBOOT,
    "system.reboot_timeout_s": _REBOOT,
    "source": _OPERATION,
    "datasets": _OPERATION,
    "benchmark": _OPERATION,
}
WHOLE_SECTIONS = {
    "smoke": _JOB,
    "images": _PULL,
    "trials": "measured, and judged by gates",
    "soak": "run, and judged by its own limits",
    "agent": "what asks on the node; deploy/agent.py",
    "pulls": _PULL,
    "rolling": "how a run goes through the nodes",
    "signing": "signatures of a run; the controller makes them",
    "waivers": "which findings a site accepts for a time; every check is judged by them",
    "service": "what may be done with suspects; shakedown service",
    "slurm": "how jobs are started there; its own nodes say whether they may be touched",
    "kubernetes": "how jobs are started there",
}  # every other field of these


def fields(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """The dotted paths of all fields, through the models within; of lists and mappings of models their own path."""
    for name, field in model.model_fields.items():
        path = f"{above}{name}"
        inner = [part for part in (field.annotation, *getattr(field.annotation, "__args__", ())) if _is_section(part)]
        yield path
        if inner and path not in NO_CHECK:
            yield from fields(inner[0], f"{path}.")


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, models.Section)


def test_every_field_is_asked_or_is_no_check() -> None:
    paths = {
        path for path in fields(DesiredState) if path not in ("tuning", "gpu", "rdma", "system", "smoke", "trials")
    }
    left = paths - set(ASKED) - set(NO_CHECK)
    assert {path for path in left if path.partition(".")[0] not in WHOLE_SECTIONS} == set()
    assert not set(ASKED) & set(NO_CHECK)
    assert not (set(ASKED) | set(NO_CHECK)) - paths, "a field that is no more"


def test_each_check_says_which_keys_it_answers() -> None:
    answers = checks.answers()
    assert {key for keys in answers.values() for key in keys} <= set(fields(DesiredState)), "a key that is no more"
    for path, (_, names) in ASKED.items():
        for name in {name.partition(".")[0] for name in names} - {"fleet"}:
            assert any(f"{path}.".startswith(f"{key}.") for key in answers[name]), f"{name} does not name {path}"
    assert all(answers.values())


def nothing_asked(**more: Any) -> dict[str, Any]:
    return {"gpu": {"profile": "mi300x", "name": "AMD Instinct MI300X", "count": 8}, **more}


def asking(path: str, value: Any) -> DesiredState:
    """A desired state that asks for this one thing, and for devices."""
    document: dict[str, Any] = nothing_asked(rdma={"count": 8, "vendor": "14e4"})
    *above, last = path.split(".")
    at = document
    for part in above:
        at = at.setdefault(part, {})
    at[last] = value
    if above and above[-1] == "provider":
        at.setdefault("name", "bnxt_re")
    if path == "gpu.name":
        document["gpu"]["pci_ids"] = ["1002:74a1"]
    if above == ["smoke"]:
        document["smoke"].setdefault("recipe", "stanford-gpt")
        document["images"] = {"one": {"reference": "a/b:1"}}
    return DesiredState.model_validate(document)


def all_unreadable() -> NodeState:
    """A node of which nothing could be read that may be unreadable."""
    state = bare()
    for path, _ in leaves(bare().model_dump()):
        try:
            changed = with_(state, {path: unreadable("timed out", "/x")})
        except (ValidationError, KeyError, TypeError, IndexError):
            continue
        if str(changed).count("Unreadable(") > str(state).count("Unreadable("):  # else it is a dictionary of texts
            state = changed
    return state


def broken() -> NodeState:
    """A node whose devices are of another kind, and half of whose readings are missing."""
    changes: dict[Any, Any] = {f"rdma.{index}.vendor": "15b3" for index in range(8)}
    changes |= {f"gpus.{index}.vram_bytes": unreadable("missing") for index in range(8)}
    changes |= {"disks": [], "sysctl": {}, "containers.engine": unreadable("missing"), "interfaces": []}
    return with_(healthy(), changes)


def software() -> NodeState:
    """RDMA devices in software, and virtual functions alone."""
    changes: dict[Any, Any] = {}
    for index in range(8):
        virtual = {"physical_function": "0000:ff:00.0"}
        one = {"bdf": None, "vendor": None, "link": None, "netdev": unreadable("missing")}
        changes |= {f"rdma.{index}.{key}": value for key, value in (virtual if index % 2 else one).items()}
    return with_(healthy(), changes)


STATES = {
    "healthy": healthy(),
    "bare": bare(),
    "unreadable": all_unreadable(),
    "broken": broken(),
    "software": software(),
    "infiniband": with_(healthy(), {f"rdma.{index}.link_layer": "InfiniBand" for index in range(8)}),
    "no devices": with_(healthy(), {"rdma": [], "gpus": []}),
}


def findings(wanted: DesiredState, state: NodeState) -> list[Finding]:
    """As a deploy and the drift check have them, of a node that is alone."""
    examined = Examination({"n": wanted}, readings={"n": Reading(state)})
    examined.judge()
    return examined.all_findings()


def answers(finding: Finding, name: str) -> bool:
    return finding.name == name or (name == "mtu" and finding.name.startswith("mtu."))


@pytest.mark.parametrize("kind", STATES)
@at_once("path", ASKED)
def test_what_is_asked_for_is_answered(path: str, kind: str) -> None:
    value, names = ASKED[path]
    found = findings(asking(path, value), STATES[kind])
    for name in names:
        (first, *_) = [each for each in found if answers(each, name)] or [None]
        assert first is not None, f"{path} asks for {name}, and a node that is {kind} says nothing"
        assert first.wanted is not None
        assert first.verdict == Verdict.OK or first.evidence or first.actual is not None
        assert not first.evidence.startswith("the check "), first.evidence


def test_nothing_is_ok_of_which_nothing_could_be_read() -> None:
    everything = desired(
        tuning={"groups": ["rack"], "modules": ["nvme"], "sysctl": {"vm.swappiness": 1}},
        images={"one": "a/b:1"},
        system={"mpi": "installed", "disk_free": {"/": "1G"}},
        smoke={"recipe": "stanford-gpt", "image": "one"},
    )
    state = STATES["unreadable"]
    # What has no way to be unread: the user's groups, the inventory's own contradictions, and the total of memory.
    known = {"groups", "support", "fleet"}
    for finding in findings(everything, state):
        if finding.verdict == Verdict.OK:
            assert finding.name.partition(".")[0] in known, finding


def test_each_entry_of_the_same_kind_has_its_own_finding() -> None:
    wanted = desired(
        tuning={"groups": ["a b", "c"], "sysctl": {"vm.swappiness": 1, "kernel.a": 2}, "modules": ["x", "y-z"]},
        system={"disk_free": {"/": "1G", "/a": "1G", "/b c": "1G"}},
        images={"one": "a/b:1", "two": "a/b:2"},
    )
    names = [finding.name for finding in findings(wanted, healthy())]
    assert len(names) == len(set(names))
    expected = {"groups.a b", "groups.c", "sysctl.vm.swappiness", "sysctl.kernel.a", "modules.x", "modules.y_z"}
    assert expected | {"disk_free./a", "disk_free./b c", "images.one", "images.two"} <= set(names)


def test_where_no_device_is_wanted_what_else_is_asked_of_them_is_told() -> None:
    """As a node of a rack that has no NICs of its own: count 0 over the family's layer."""
    none = desired("cpu", rdma={"count": 0})
    found = {finding.name: finding for finding in checks.evaluate(none, bare(), "n")}
    for name in ("rdma_rate", "rdma_link.speed", "mtu", "max_read_request", "provider_library", "provider_driver"):
        assert (found[name].verdict, found[name].actual) == ("ok", "none wanted"), name
    assert "rdma_count" not in found, "count 0 asks for nothing"


REFUSED = [
    ("tuning", {"modules": ["nvme; reboot"]}, "tuning.modules.0"),
    ("tuning", {"modules": ["-r"]}, "tuning.modules.0"),
    ("tuning", {"modules": [""]}, "tuning.modules.0"),
    ("tuning", {"modules": ["a\nb"]}, "tuning.modules.0"),
    ("tuning", {"sysctl": {"kernel/../../etc/passwd": 1}}, "tuning.sysctl.kernel/../../etc/passwd"),
    ("tuning", {"sysctl": {"vm.swappiness = 1\nkernel.panic": 1}}, "tuning.sysctl"),
    ("tuning", {"sysctl": {"swappiness": 1}}, "tuning.sysctl.swappiness"),
    ("tuning", {"sysctl": {"vm..x": 1}}, "tuning.sysctl.vm..x"),
    ("tuning", {"sysctl": {"vm.swappiness": "1\nkernel.panic = 1"}}, "tuning.sysctl.vm.swappiness"),
    ("tuning", {"groups": ["a:b"]}, "tuning.groups.0"),
    ("tuning", {"groups": ["a,b"]}, "tuning.groups.0"),
    ("tuning", {"groups": ["-G"]}, "tuning.groups.0"),
    ("tuning", {"groups": [" a"]}, "tuning.groups.0"),
    ("tuning", {"groups": ["a "]}, "tuning.groups.0"),
    ("tuning", {"groups": ["a\n"]}, "tuning.groups.0"),
    ("tuning", {"groups": ["../a"]}, "tuning.groups.0"),
    ("tuning", {"cmdline": ['a="$(reboot)"']}, "tuning.cmdline.0"),
    ("tuning", {"cmdline": ["a b"]}, "tuning.cmdline.0"),
    ("tuning", {"cmdline": ["{gpu}=1"]}, "tuning.cmdline.0"),
    ("tuning", {"cpu_governor": "a b"}, "tuning.cpu_governor"),
    ("system", {"disk_free": {"data": "1G"}}, "system.disk_free.data"),
    ("system", {"disk_free": {"//data": "1G"}}, "system.disk_free.//data"),
    ("system", {"disk_free": {"/a/../b": "1G"}}, "system.disk_free./a/../b"),
    ("system", {"disk_free": {"/a\x1b[2J": "1G"}}, "system.disk_free"),
    ("rdma", {"devices": ["a b"]}, "rdma.devices.0"),
    ("rdma", {"mounts": {"lib": "/lib"}}, "rdma.mounts.lib"),
    ("rdma", {"mounts": {"/lib": "lib"}}, "rdma.mounts./lib"),
    ("rdma", {"mounts": {"/lib,source=/": "/lib"}}, "rdma.mounts./lib,source=/"),
    ("rdma", {"provider": {"config_dirs": ["etc"]}}, "rdma.provider.config_dirs.0"),
    ("rdma", {"provider": {"host_library": "../lib{abi}.so"}}, "rdma.provider.host_library"),
]


@pytest.mark.parametrize(("section", "values", "path"), REFUSED)
def test_what_a_kernel_or_a_file_could_not_hold_is_refused_with_its_path(
    section: str, values: dict[str, Any], path: str
) -> None:
    with pytest.raises(DesiredStateError) as error:
        desired(**{section: values})
    assert any(path in problem.path for problem in error.value.problems), str(error.value)
    assert "\x1b" not in str(error.value)


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("tuning", {"groups": ["domain users", "DOM\\gpu users", "größe", "render"]}),
        ("tuning", {"sysctl": {"net.ipv4.conf.eth0/5.rp_filter": 1, "net.ipv4.tcp_rmem": "4096 87380 6291456"}}),
        (
            "tuning",
            {"cmdline": ["pci=realloc=off", "console=ttyS0,115200n8", "{cpu}_iommu=on", "root=/dev/mapper/a-b"]},
        ),
        ("tuning", {"modules": ["dm-mod", "ib_uverbs", "8021q"]}),
        ("system", {"disk_free": {"/srv/my data; (it's)": "1G"}}),
        ("rdma", {"devices": ["bnxt_re[0-7]", "ens?f0_rdma", "mlx5_*", "rocep1s0.5"]}),
    ],
)
def test_what_is_unusual_and_could_be_is_kept(section: str, values: dict[str, Any]) -> None:
    desired(**{section: values})


@pytest.mark.parametrize("names", [["nvme; reboot"], ["a b"], ["-r"], ["a\n"]])
def test_operations_refuse_by_themselves_what_is_no_module(names: list[str]) -> None:
    with pytest.raises(OperationValueError, match="not a kernel module"):
        checked.module_names(names)


def test_operations_refuse_by_themselves_keys_and_accounts_that_lead_elsewhere() -> None:
    assert checked.module_names(["dm-mod"]) == ["dm_mod"] and checked.sysctl_key("vm.swappiness") == "vm.swappiness"
    with pytest.raises(OperationValueError, match="not a sysctl key"):
        checked.sysctl_key("kernel/../../etc/passwd")
    checked.check_accounts("domain users", "DOM\\ada")
    with pytest.raises(OperationValueError, match="not a name of a user or group"):
        checked.check_accounts("ada", "x\ny")
