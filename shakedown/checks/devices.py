"""The files under /dev that a job opens: /dev/kfd, /dev/dri/renderD*, /dev/infiniband/*."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from shakedown.checks import GPUS, NICS, check, check_wanted
from shakedown.checks.compare import NEW_LOGIN, comparison, missing, unknown
from shakedown.common.text import counted
from shakedown.desired.models import DesiredState
from shakedown.node.cmdline import kernel_name
from shakedown.node.devices import ACCESS, Access
from shakedown.state.findings import Comparison, Remedy, Risk, Verdict
from shakedown.state.node import DeviceNode, NodeState, is_unreadable


@check("kfd", "gpu.count", "gpu.modules", follows=GPUS, waivable=False)
def kfd(desired: DesiredState, state: NodeState) -> Comparison | None:
    """/dev/kfd is the driver's (its major), belongs to render, and the job's user can open it."""
    modules = desired.gpu.modules
    if not modules:
        return None
    files = ACCESS["kfd"]
    wanted = f"char device of KFD's major, {files.mode} {files.group}, openable by {state.account.user}"
    remedy = _remedy("devices.kfd", f"load {', '.join(modules)} and set group and mode of /dev/kfd", modules=modules)
    device, major = state.devices.kfd, state.devices.kfd_major
    if missing(device) or missing(major):
        what = "there is no /dev/kfd" if missing(device) else "/dev/kfd is there, but no driver is behind it"
        return _not_there(wanted, what, state, modules, remedy)
    if is_unreadable(device):
        return unknown(wanted, device, evidence="/dev/kfd")
    if is_unreadable(major):
        return unknown(wanted, major, evidence="/proc/devices")
    if device.kind != "char" or device.major != major:
        actual = f"{device.kind} device with major {device.major}"
        evidence = f"/proc/devices gives kfd the major {major}"
        person = Remedy(text="remove the file and reload the driver: it is not KFD's, whatever made it")
        return comparison(Verdict.FAIL, wanted, actual, evidence, person)
    return _access(wanted, [device], state, remedy, files)


@check("dri", "gpu.count", follows=(*GPUS, "kfd"), waivable=False)
def dri(desired: DesiredState, state: NodeState) -> Comparison | None:
    """One render node per GPU (a partitioned GPU has more), each openable by the job's user."""
    count, modules = desired.gpu.count, desired.gpu.modules
    if not count or not modules:
        return None
    files = ACCESS["dri"]
    wanted = f"{counted(count, 'render node')}, {files.mode} {files.group}, openable by {state.account.user}"
    remedy = _remedy("devices.dri", "load the driver and set group and mode of /dev/dri/renderD*", modules=modules)
    if is_unreadable(state.devices.dri):
        return unknown(wanted, state.devices.dri, evidence="/dev/dri")
    render = [device for device in state.devices.dri if "/renderD" in device.path]
    if len(render) < count:
        return _not_there(wanted, counted(len(render), "render node"), state, modules, remedy)
    return _access(wanted, render, state, remedy, files)


@check_wanted("infiniband", "rdma.count", follows=NICS)
def infiniband(desired: DesiredState, state: NodeState, count: int) -> Comparison | None:
    """/dev/infiniband has rdma_cm, and uverbsN and umadN for each RDMA device."""
    files, devices = ACCESS["infiniband"], len(state.rdma) if not is_unreadable(state.rdma) else count
    wanted = f"rdma_cm, {devices} uverbs and {devices} umad; rdma_cm and uverbs openable by {state.account.user}"
    text = f"load {', '.join(files.modules)} and set the mode of /dev/infiniband/{{rdma_cm,uverbs*}}"
    remedy = _remedy("devices.infiniband", text, modules=files.modules)
    if is_unreadable(state.devices.infiniband):
        return unknown(wanted, state.devices.infiniband, evidence="/dev/infiniband")
    present = {device.path[len("/dev/infiniband/") :]: device for device in state.devices.infiniband}
    least = {"rdma_cm": 1, "uverbs": devices, "umad": devices}
    seen = Counter(name.rstrip("0123456789") for name in present)
    few = {kind: seen[kind] for kind, number in least.items() if seen[kind] < number}
    if few:
        makers = {"rdma_cm": "rdma_ucm", "uverbs": "ib_uverbs", "umad": "ib_umad"}
        what = ", ".join(f"{count} {kind}" for kind, count in few.items())
        return _not_there(wanted, what, state, [makers[kind] for kind in few], remedy)
    opened = [device for name, device in present.items() if not name.startswith(("umad", "issm"))]
    return _access(wanted, opened, state, remedy, files)


def _not_there(wanted: str, what: str, state: NodeState, modules: Sequence[str], remedy: Remedy) -> Comparison:
    """Drift where loading a module can make the files appear; fail where the modules are loaded already."""
    loaded = [] if is_unreadable(state.modules.loaded) else state.modules.loaded
    absent = [name for name in map(kernel_name, modules) if name not in (*loaded, *state.modules.builtin)]
    if absent and is_unreadable(state.modules.loaded):
        return comparison(Verdict.DRIFT, wanted, what, f"/proc/modules is {state.modules.loaded}", remedy)
    if absent:
        barred = [module for module in absent if module in state.modules.blacklisted]
        evidence = f"not loaded: {', '.join(absent)}" + (f"; blacklisted: {', '.join(barred)}" if barred else "")
        return comparison(Verdict.DRIFT, wanted, what, evidence, remedy)
    person = Remedy(text="look in dmesg for what the loaded modules met, and whether the hardware is there")
    return comparison(Verdict.FAIL, wanted, what, f"loaded: {', '.join(modules)}", person)


def _access(wanted: str, devices: Sequence[DeviceNode], state: NodeState, remedy: Remedy, files: Access) -> Comparison:
    """Return who may open the files. With the right mode and group a user who still cannot lacks the group."""
    least, group = int(files.mode, 8), files.group
    misset = [d for d in devices if int(d.mode, 8) & least != least or (group is not None and d.group != group)]
    if misset:
        actual = {device.path: f"{device.mode} {device.group}" for device in misset}
        return comparison(Verdict.DRIFT, wanted, actual, "stat", remedy)
    for device in devices:
        if is_unreadable(device.openable):
            return unknown(wanted, device.openable, evidence=device.path)
    closed = [device.path for device in devices if not device.openable]
    if not closed:
        modes = dict.fromkeys(f"{device.mode} {device.group}" for device in devices)
        return comparison(Verdict.OK, wanted, f"{len(devices)} x {', '.join(modes)}", "stat, open")
    user = state.account.user
    if group is not None and group not in state.account.groups:
        if group in state.account.at_login:
            late = f"{user} is in {group}, and this session began before that"
            return comparison(Verdict.DRIFT, wanted, late, ", ".join(closed), NEW_LOGIN)
        arguments = {"user": user, "groups": [group]}
        join = Remedy(text=f"put {user} into the group {group}", operation="tuning.groups", arguments=arguments)
        return comparison(Verdict.DRIFT, wanted, f"{user} is not in {group}", ", ".join(closed), join)
    person = Remedy(
        text="look for what else forbids it, since mode and group allow it: a device cgroup, a container, SELinux"
    )
    return comparison(Verdict.FAIL, wanted, f"{user} cannot open it", ", ".join(closed), person)


def _remedy(operation: str, text: str, modules: Sequence[str]) -> Remedy:
    return Remedy(text=text, operation=operation, arguments={"modules": list(modules)}, risk=Risk.SAFE)
