"""The GPUs: how many, which, how they are partitioned and linked, whether they are sound and free."""

from __future__ import annotations

import functools
import re
from dataclasses import replace

from shakedown.checks import GPUS, check, check_wanted
from shakedown.checks.compare import comparison, installed, missing, unknown
from shakedown.checks.per_device import compare, register
from shakedown.desired import profiles
from shakedown.desired.models import DesiredState
from shakedown.state.findings import Comparison, Remedy, Verdict
from shakedown.state.node import Gpu, NodeState, is_unreadable


@check("gpu_count", "gpu.count", waivable=False)
def gpu_count(desired: DesiredState, state: NodeState) -> Comparison | None:
    """As many GPUs on the PCI bus as the profile says; none where it is the CPU profile."""
    wanted = desired.gpu.count
    if is_unreadable(state.gpus):
        return unknown(wanted, state.gpus)
    found = state.gpus
    if wanted == 0:
        instinct = {gpu.pci_id: _instinct()[gpu.pci_id] for gpu in found if gpu.pci_id in _instinct()}
        if not instinct:
            return Comparison(verdict=Verdict.OK, wanted=0, actual=0, evidence="PCI bus")
        choice = " or ".join(f'gpu="{name}"' for name in sorted(set(instinct.values())))
        evidence = f"profile {desired.gpu.profile}, but the PCI bus has {_places(found)}"
        remedy = Remedy(text=f"set {choice} in the inventory: this node has Instinct GPUs")
        return comparison(Verdict.FAIL, wanted, len(found), evidence, remedy)
    if len(found) == wanted:
        return Comparison(verdict=Verdict.OK, wanted=wanted, actual=wanted, evidence=_places(found))
    evidence = _places(found) or "no GPU on the PCI bus"
    evidence += "; the driver is up (/dev/kfd)" if not is_unreadable(state.devices.kfd) else ""
    remedy = Remedy(text="reseat or replace the GPU that is missing, and power-cycle the node")
    return comparison(Verdict.FAIL, wanted, len(found), evidence, remedy)


register(__name__, "gpu_model", "gpu_partition", "gpu_link")


@check("gpu_xgmi", "gpu.xgmi_links", follows=GPUS)
def gpu_xgmi(desired: DesiredState, state: NodeState) -> Comparison | None:
    """Check the links between the GPUs of a board. Only AMD's library tells, since ROCm 6.4: an older one that answers
    and knows nothing of them is drift, since such a node may train and nobody should read it as a pass."""
    wanted = desired.gpu.xgmi_links
    gpus = [] if is_unreadable(state.gpus) or not desired.gpu.count or wanted is None else state.gpus
    if gpus and not is_unreadable(state.gpu_tool) and all(missing(gpu.xgmi_links) for gpu in gpus):
        evidence = f"amdsmi {state.gpu_tool} has no function for links"
        remedy = Remedy(text="install the amdsmi of ROCm 6.4 or newer, or ask for none: gpu.xgmi_links = None")
        return comparison(Verdict.DRIFT, wanted, "not reported", evidence, remedy, unit="links up")
    return next(iter(compare("gpu_xgmi", desired, state)), None)


@check_wanted("gpu_ecc", "gpu.count", "gpu.corrected_errors", follows=GPUS, waivable=False)
def gpu_ecc(desired: DesiredState, state: NodeState, _wanted: int) -> list[Comparison]:
    """No uncorrectable memory error since the driver was loaded. Corrected errors are advice: the node may train, and
    memory that needs many corrections is the memory that fails next."""
    uncorrectable, *corrected = compare("gpu_ecc", desired, state)
    if blocks := _by_block(state):
        uncorrectable = replace(uncorrectable, evidence="; ".join(filter(None, (uncorrectable.evidence, blocks))))
    return [uncorrectable, *corrected]


def _by_block(state: NodeState) -> str:
    """Name the blocks of each GPU that have counted errors, such as UMC (memory) and XGMI_WAFL (links)."""
    return "; ".join(
        f"{gpu.bdf} {name}: {block.uncorrectable} uncorrected, {block.correctable} corrected, {block.deferred} deferred"
        for gpu in ([] if is_unreadable(state.gpus) else state.gpus)
        for name, block in ({} if is_unreadable(gpu.ecc_blocks) else gpu.ecc_blocks).items()
    )


register(__name__, "gpu_pcie_replays")


@check("gpu_tool", "gpu.count", follows=(*GPUS, "rocm_version"))
def gpu_tool(desired: DesiredState, state: NodeState) -> Comparison | None:
    """AMD's library answers. The driver's files tell most without it, but not firmware and XGMI links; and a library
    that hangs or fails on one node is the first sign of a GPU that does."""
    if not desired.gpu.count or desired.gpu.rocm_min is None:
        return None
    wanted = "libamd_smi.so answers"
    if is_unreadable(state.gpu_tool):
        remedy = Remedy(text="run `amd-smi list` on the node: install it where it is missing, else read dmesg; reboot")
        return unknown(wanted, state.gpu_tool, remedy=remedy)
    return Comparison(verdict=Verdict.OK, wanted=wanted, actual=state.gpu_tool)


@check("gpu_idle", "gpu.count", "gpu.vram_used_bytes", follows=GPUS)
def gpu_idle(desired: DesiredState, state: NodeState) -> list[Comparison]:
    """No other user's process holds a GPU, which would be measured together with the job; and no memory is in use, also
    where no process shows that holds it (a container of another PID namespace, memory that a killed job left)."""
    return [_processes(state), *compare("gpu_idle", desired, state)] if desired.gpu.count else []


def _processes(state: NodeState) -> Comparison:
    """Return the finding of processes that hold a GPU."""
    if is_unreadable(state.gpu_processes):
        return unknown("no process", state.gpu_processes)
    holders = {str(process.pid): process.name for process in state.gpu_processes}
    for gpu in [] if is_unreadable(state.gpus) else state.gpus:  # amdsmi also lists those without a queue
        holders.update({str(user.pid): user.name for user in ([] if is_unreadable(gpu.processes) else gpu.processes)})
    remedy = Remedy(text="wait for these processes or ask their owners; none of them is ended from here")
    verdict, evidence = Verdict.FAIL if holders else Verdict.OK, "processes that hold a GPU, by pid"
    return comparison(verdict, "no process", holders or "no process", evidence, remedy)


@check_wanted("kfd_topology", "gpu.count", follows=GPUS, waivable=False)
def kfd_topology(desired: DesiredState, state: NodeState, count: int) -> Comparison | None:
    """Check that the compute driver has taken every GPU that is on the bus. Partitioned GPUs are several nodes each."""
    partition = desired.gpu.compute_partition
    whole = partition in (None, "SPX")
    seen = state.kfd.gpu_nodes if whole else state.kfd.gpus
    if is_unreadable(seen):
        return unknown(count, seen)
    remedy = Remedy(text="reload amdgpu or reboot: dmesg names the GPU that the driver did not initialise")
    verdict, evidence = Verdict.OK if seen == count else Verdict.FAIL, "/sys/class/kfd/kfd/topology/nodes"
    unit = "GPU nodes" if whole else f"GPUs, in {partition}"
    return comparison(verdict, count, seen, evidence, remedy, unit=unit)


@check_wanted("rocm_version", "gpu.rocm_min")
def rocm_version(desired: DesiredState, state: NodeState, least: str) -> Comparison:
    """At least the first ROCm that knows the model."""
    installed = state.rocm_version
    source = "/opt/rocm/.info/version" if is_unreadable(state.rocm_file) else state.rocm_file
    remedy = Remedy(text=f"install ROCm {least} or newer: drivers are not exchanged from here")
    if is_unreadable(installed) and not missing(installed):
        return unknown(f">= {least}", installed)
    if is_unreadable(installed):
        return comparison(Verdict.FAIL, f">= {least}", "none installed", str(installed), remedy)
    version = parse_version(installed)
    if version is None:
        return comparison(Verdict.UNKNOWN, f">= {least}", None, f"{installed!r} is not a version", remedy)
    right = version >= (parse_version(least) or ())
    return comparison(Verdict.OK if right else Verdict.FAIL, f">= {least}", installed, source, remedy)


@check_wanted("rccl", "gpu.rccl", follows=("rocm_version",))
def rccl(desired: DesiredState, state: NodeState, wanted: str) -> Comparison:
    """ROCm's communication library on the node. Drift and not failure where it is not: a job may bring its own, as
    PyTorch's packages and images do, and nobody should read it as a pass."""
    remedy = Remedy(text="install the package rccl of the node's ROCm")
    return installed(wanted, state.software.rccl, remedy)


def parse_version(text: str) -> tuple[int, ...] | None:
    """Major, minor and patch as numbers: "6.4.1-83" -> (6, 4, 1), "7.0" -> (7, 0, 0); None where it is no version."""
    match = re.match(r"\s*v?(\d+)\.(\d+)(?:\.(\d+))?(?![\d])", text)
    return tuple(int(part or 0) for part in match.groups()) if match else None


def _places(gpus: list[Gpu]) -> str:
    return ", ".join(gpu.bdf for gpu in gpus)


@functools.lru_cache
def _instinct() -> dict[str, str]:
    """PCI id -> the profile that knows it. A workstation's graphics card is no reason to train on it."""
    known = {name: profiles.load("gpu", name)["gpu"] for name in profiles.names("gpu")}
    instinct = {name: gpu for name, gpu in known.items() if gpu["name"].startswith("AMD Instinct")}
    return {pci_id: name for name, gpu in instinct.items() for pci_id in gpu.get("pci_ids", [])}
