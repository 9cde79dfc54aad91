"""Host settings: the files of shakedown/node/settings that `tuning` asks for, the kernel's command line, PCI Express,
limits and groups of the user that runs jobs, kernel modules, and the MTU of the interfaces that carry RDMA.

A session keeps the limits and groups that it began with, so the next login counts too. Of the command line the running
kernel and the next boot count. No interface but those of RDMA devices is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from shakedown.checks import NICS, check, check_wanted
from shakedown.checks.compare import (
    NEW_LOGIN,
    at_boot,
    boot_remedy,
    compare_setting,
    comparison,
    nothing_there,
    remedy_of,
    unknown,
)
from shakedown.desired.hca import devices_of, none_there
from shakedown.desired.models import DesiredState, Tuning
from shakedown.node.cmdline import kernel_name
from shakedown.node.setting import SETTINGS, proc_path
from shakedown.node.setting import Setting as Known
from shakedown.state.findings import Comparison, FixedBy, Remedy, Risk, Verdict
from shakedown.state.node import NOT_READ, Account, NodeState, Setting, Unreadable, is_unreadable


def compare(known: Known, desired: DesiredState, state: NodeState) -> Comparison | None:
    """Compare a setting that a node has once."""
    value = getattr(desired.tuning, known.name)
    if value is None:
        return None
    wanted = known.word(value)
    setting, more = _now_and_later(known, wanted, state)
    if isinstance(setting, Unreadable):
        return unknown(wanted, setting, evidence=known.evidence)
    running = setting.running
    if known.absent == wanted and is_unreadable(running) and running.unreadable == "missing":
        evidence = f"{known.evidence.partition(',')[0]}: not there, a kernel without it"
        return Comparison(verdict=Verdict.OK, wanted=wanted, actual="absent", evidence=evidence)
    remedy = partial(remedy_of, known, wanted, state, right_now=running == wanted)
    evidence = known.evidence + more
    return compare_setting(wanted, setting, evidence=evidence, unit=known.unit, remedy=remedy)


def _now_and_later(known: Known, wanted: str, state: NodeState) -> tuple[Setting | Unreadable, str]:
    """Return the setting's values, and what the evidence adds where it stands at several places of the node."""
    if not known.place:
        return state.settings.get(known.name, NOT_READ), ""
    reading: Any = state
    for part in known.place.split("."):
        reading = getattr(reading, part)
    if is_unreadable(reading) or hasattr(reading, "running"):  # a setting: on a node each model is a dictionary
        return reading, ""
    running, more = known.summary(reading, wanted, state.cpu.count)
    return Setting(running=running, persisted=at_boot(state.boot_unit, known.key())), more


for _name in Tuning.model_fields:
    if _name in SETTINGS and not SETTINGS[_name].details:
        check(_name, f"tuning.{_name}")(partial(compare, SETTINGS[_name]))


_NO_SETTING = Setting(running=NOT_READ, persisted=NOT_READ)


@check("sysctl", "tuning.sysctl")
def sysctl(desired: DesiredState, state: NodeState) -> Iterator[Comparison]:
    """One finding per key."""
    known = SETTINGS["sysctl"]
    for key, value in desired.tuning.sysctl.items():
        wanted = known.word(value)
        setting = state.sysctl.get(key, _NO_SETTING)
        remedy = partial(remedy_of, known, wanted, state, right_now=setting.running == wanted, detail=key)
        evidence = known.evidence.format(proc_path(key)[len("/proc/sys/") :])
        yield compare_setting(wanted, setting, evidence=evidence, remedy=remedy).about(key)


_VENDORS = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}
_COLLECTED = ("pci",)  # the kernel adds up what each occurrence says; of any other parameter the last one rules


@check_wanted("cmdline", "tuning.cmdline")
def cmdline(desired: DesiredState, state: NodeState, parameters: list[str]) -> Comparison | None:
    """Every wanted parameter is there now and at the next boot. Only a reboot brings it into the running kernel."""
    if any("{cpu}" in parameter for parameter in parameters):
        vendor = state.cpu.vendor
        if is_unreadable(vendor):
            return unknown(parameters, vendor, evidence="/proc/cpuinfo")
        if vendor not in _VENDORS:
            evidence = f"/proc/cpuinfo: CPU vendor {vendor} is neither of {', '.join(_VENDORS)}"
            remedy = Remedy(text="write the parameters of this CPU into tuning.cmdline, in place of {cpu}")
            return Comparison(verdict=Verdict.UNKNOWN, wanted=parameters, evidence=evidence, remedy=remedy)
        wanted = [parameter.replace("{cpu}", _VENDORS[vendor]) for parameter in parameters]
    else:
        wanted = list(parameters)
    return _compare(wanted, desired, state)


def _compare(wanted: list[str], desired: DesiredState, state: NodeState) -> Comparison:
    running, persisted = state.cmdline.running, state.cmdline.persisted
    if is_unreadable(running):
        return unknown(wanted, running, evidence="/proc/cmdline")
    lacks_now = missing(wanted, running)
    no_loader = state.cmdline.loader == "none"
    if is_unreadable(persisted) and not lacks_now:
        where = "no boot loader known, so nothing says what the next boot has" if no_loader else "boot loader"
        return unknown(wanted, persisted, evidence=where)
    lacks_later = wanted if is_unreadable(persisted) else missing(wanted, persisted)
    evidence = [f"/proc/cmdline lacks {' '.join(lacks_now)}" if lacks_now else "/proc/cmdline has them all"]
    if is_unreadable(persisted):
        evidence.append("no boot loader known" if no_loader else f"boot loader: {persisted}")
    elif lacks_later:
        evidence.append(f"the boot loader ({state.cmdline.loader}) lacks {' '.join(lacks_later)}")

    verdict = Verdict.DRIFT if lacks_now or lacks_later else Verdict.OK
    if no_loader and lacks_later:
        verdict = Verdict.FAIL  # no operation can reach whatever boots this machine
    return Comparison(
        verdict=verdict,
        wanted=wanted,
        actual=[parameter for parameter in wanted if parameter not in lacks_now],
        persisted=None if is_unreadable(persisted) else [item for item in wanted if item not in lacks_later],
        reboot_pending=bool(lacks_now) and not lacks_later,
        evidence="; ".join(evidence),
        remedy=None if verdict == Verdict.OK else _remedy(wanted, lacks_later, no_loader, desired),
    )


def _remedy(wanted: list[str], lacks_later: list[str], no_loader: bool, desired: DesiredState) -> Remedy:
    if lacks_later and no_loader:
        return Remedy(
            text=f"add {' '.join(lacks_later)} in what boots this machine (no boot loader is known), then reboot"
        )
    if lacks_later:
        return Remedy(
            text=f"add {' '.join(lacks_later)} to the boot loader's kernel parameters",
            operation="cmdline.kernel_parameters",
            arguments={"parameters": wanted},
            risk=Risk.REBOOT,
        )
    if desired.system.reboot == "never":
        text = 'reboot the node by hand, or allow it: system.reboot = "when needed"'
        return Remedy(text=text, risk=Risk.REBOOT, by=FixedBy.REBOOT)
    limits = {"at_once": desired.system.reboot_at_once, "timeout_s": desired.system.reboot_timeout_s}
    arguments = {"parameters": wanted, **limits}
    return Remedy(text="reboot", operation="reboot.when_needed", arguments=arguments, risk=Risk.REBOOT)


def missing(wanted: Sequence[str], line: Sequence[str]) -> list[str]:
    """Return the wanted parameters that a kernel started with this command line does not obey.

    A value may be one of several separated by commas: pci=realloc=off,bfsort holds pci=bfsort.
    """
    return [parameter for parameter in wanted if not _obeyed(parameter, line)]


def _obeyed(parameter: str, line: Sequence[str]) -> bool:
    key, equals, value = parameter.partition("=")
    if not equals:
        return parameter in line
    values = [word.partition("=")[2].split(",") for word in line if word.startswith(key + "=")]
    ruling = values if key in _COLLECTED else values[-1:]
    return any(value in values or value.split(",") == values for values in ruling)


@check_wanted("max_read_request", "rdma.max_read_request", follows=NICS)
def max_read_request(desired: DesiredState, state: NodeState, wanted: int) -> Comparison | None:
    """Of every RDMA device of the family on PCI. Devices in software have none, and a virtual function has no such
    field of its own."""
    vendor = desired.rdma.vendor
    known = SETTINGS["max_read_request"]
    evidence, unit = known.evidence, known.unit
    if is_unreadable(state.rdma):
        return unknown(wanted, state.rdma, evidence="/sys/class/infiniband")
    family = devices_of(desired.rdma, state.rdma)
    devices = [device for device in family if device.bdf and not device.physical_function]
    if not devices:
        names = ", ".join(device.name for device in family)
        why = f"no PCI function of their own: {names}" if family else none_there(desired.rdma)
        return nothing_there(wanted, count=len(family) or desired.rdma.count, why=why, unit=unit)
    for device in devices:
        if is_unreadable(device.max_read_request):
            return unknown(wanted, device.max_read_request, evidence=f"{device.name}: {evidence}")
    sizes = {device.name: str(device.max_read_request) for device in devices}
    others = {device: size for device, size in sizes.items() if size != str(wanted)}
    if others:
        evidence += f": {', '.join(f'{device} {size}' for device, size in others.items())}"
    key = f"{known.key()}.{vendor}" if vendor else known.key()
    setting = Setting(
        running=", ".join(sorted(set(others.values()), key=int)) if others else str(wanted),
        persisted=at_boot(state.boot_unit, key),
    )
    text = f"{known.text(str(wanted))} for {', '.join(others or sizes)}"
    remedy = boot_remedy(text, {key: wanted}, state, right_now=not others, risk=Risk(known.risk))
    return compare_setting(wanted, setting, evidence=evidence, unit=unit, remedy=remedy)


_LISTED = ("render", "video", "docker")  # the groups whose members the probe reads


@check_wanted("memlock", "tuning.memlock")
def memlock(desired: DesiredState, state: NodeState, wanted: int | str) -> Comparison:
    """Memory that may be locked, which RDMA registers."""
    return _limit("memlock", wanted, state.limits.memlock, "KiB", state)


@check_wanted("nofile", "tuning.nofile")
def nofile(desired: DesiredState, state: NodeState, wanted: int) -> Comparison:
    """Files that may be open at once."""
    return _limit("nofile", wanted, state.limits.nofile, "files", state)


def _limit(name: str, wanted: int | str, setting: Setting, unit: str, state: NodeState) -> Comparison:
    user = state.account.user
    remedy = Remedy(
        text=f"set {name} to {wanted} for all users in limits.d, from the next login on",
        operation="tuning.limits",
        arguments={name: wanted, "user": user},
    )
    evidence = f"/proc/self/limits of {user}, /etc/security/limits.d"
    found = compare_setting(wanted, setting, evidence=evidence, unit=unit, remedy=remedy)
    # Written down and not in this session: it is a login that is waited for, not a boot.
    return replace(found, reboot_pending=False, remedy=NEW_LOGIN) if found.reboot_pending else found


@check("groups", "tuning.groups")
def groups(desired: DesiredState, state: NodeState) -> Iterator[Comparison]:
    """One finding per group: it exists, the user is a member, and the session has it. Root's sessions need none."""
    for group in desired.tuning.groups:
        yield _group(group, state.account).about(group)


def _group(group: str, account: Account) -> Comparison:
    user = account.user
    in_session = group in account.groups
    # A directory server may give groups that no file names; of those the session is all the evidence there is.
    member = group in account.at_login or (group not in _LISTED and in_session)
    if member and (in_session or user == "root"):
        actual, remedy = "member", None
    elif member:
        actual, remedy = "member, not in this session", NEW_LOGIN
    else:
        exists = group not in _LISTED or group in account.members
        actual = "not a member" if exists else "no such group"
        remedy = Remedy(
            text=f"make {user or 'the user'} a member of {group}, from the next login on",
            operation="tuning.groups",
            arguments={"user": user, "groups": [group]},
        )
    return Comparison(
        verdict=Verdict.DRIFT if remedy else Verdict.OK,
        wanted="member",
        actual=actual,
        persisted="member" if member else None,
        evidence=f"/etc/group, groups of the session of {user}",
        remedy=remedy,
    )


@check("modules", "tuning.modules", "gpu.modules", "rdma.modules")
def modules(desired: DesiredState, state: NodeState) -> Iterator[Comparison]:
    """One finding per module that the tuning, the GPUs or the RDMA devices need."""
    wanted = [*desired.tuning.modules, *desired.gpu.modules, *desired.rdma.modules]
    for module in dict.fromkeys(map(kernel_name, wanted)):
        yield _module(module, state).about(module)


def _module(module: str, state: NodeState) -> Comparison:
    if module in state.modules.builtin:
        evidence = "modules.builtin"
        return Comparison(verdict=Verdict.OK, wanted="loaded", actual="built in", evidence=evidence)
    if is_unreadable(state.modules.loaded):
        return unknown("loaded", state.modules.loaded, evidence="/proc/modules")
    running = "loaded" if module in state.modules.loaded else "absent"
    if module in state.modules.blacklisted:
        # systemd-modules-load obeys a blacklist, our unit loads by name.
        evidence = f"/proc/modules; {module} is blacklisted (modprobe.d or modprobe.blacklist=)"
        known = SETTINGS["module"]
        setting = Setting(running=running, persisted=at_boot(state.boot_unit, f"{known.key()}.{module}"))
        remedy = remedy_of(known, "loaded", state, right_now=running == "loaded", detail=module)
        return compare_setting("loaded", setting, evidence=evidence, remedy=remedy)
    persisted = "loaded" if module in state.modules.persisted else None
    text, arguments = f"load {module}, now and at boot", {"modules": [module]}
    load = partial(Remedy, text=text, operation="tuning.modules", arguments=arguments)
    evidence = "/proc/modules, modules-load.d"
    return compare_setting("loaded", Setting(running=running, persisted=persisted), evidence=evidence, remedy=load)


@check_wanted("mtu", "rdma.mtu", follows=NICS)
def mtu(desired: DesiredState, state: NodeState, wanted: int) -> Iterator[Comparison]:
    """One finding per network interface of an RDMA device of the family."""
    if is_unreadable(state.rdma):
        yield unknown(wanted, state.rdma, evidence="/sys/class/infiniband")
        return
    if is_unreadable(state.interfaces):
        yield unknown(wanted, state.interfaces, evidence="/sys/class/net")
        return
    devices = devices_of(desired.rdma, state.rdma)
    if not devices:
        yield nothing_there(wanted, count=desired.rdma.count, why=none_there(desired.rdma), unit="bytes")
    mtus = {interface.name: interface.mtu for interface in state.interfaces}
    seen: set[str] = set()
    for device in devices:
        if device.link_layer == "InfiniBand":  # carries RDMA without a value of Ethernet interfaces
            sets = "the subnet manager sets its MTU (that of IPoIB is another matter)"
            evidence = f"{device.name} is an InfiniBand port: {sets}"
            yield comparison(Verdict.OK, wanted, "no Ethernet interface", evidence).about(device.name)
        elif is_unreadable(device.netdev):
            yield unknown(wanted, device.netdev, evidence=f"netdev of {device.name}").about(device.name)
        elif device.netdev not in seen:
            seen.add(device.netdev)
            yield _of(device.netdev, device.name, wanted, mtus.get(device.netdev), state).about(device.netdev)


def _of(interface: str, device: str, wanted: int, setting: Setting | None, state: NodeState) -> Comparison:
    known = SETTINGS["mtu"]
    evidence = f"{known.evidence.format(interface)}, the interface of {device}"
    if setting is None:
        evidence = f"{interface}, the interface of {device}, is not among the node's interfaces"
        remedy = Remedy(text=f"find out why {interface or 'the interface'} is gone: its driver, or a network namespace")
        return Comparison(verdict=Verdict.UNKNOWN, wanted=wanted, unit="bytes", evidence=evidence, remedy=remedy)
    right = setting.running == str(wanted)
    repair = partial(remedy_of, known, wanted, state, right_now=right, detail=interface)
    return compare_setting(wanted, setting, evidence=evidence, unit="bytes", remedy=repair)
