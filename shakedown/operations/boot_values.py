"""What the settings of boot.conf stand at on a node: one value per CPU, PCI function or interface."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from pyinfra.api.exceptions import OperationValueError
from pyinfra.context import host

from shakedown.facts.settings import Contents, PciRegisters
from shakedown.node.modules import kernel_name
from shakedown.operations.record import Step

ACS_CONTROL = "ECAP_ACS+6.w"
DEVICE_CONTROL = "CAP_EXP+8.w"
READ_REQUEST = 0x7000  # the bits of the PCI Express device control register that hold log2(bytes / 128)

MAY_BE_EMPTY = ("acs",)  # a node whose functions have no access control has it off

_CPUS = "/sys/devices/system/cpu/cpu[0-9]*"
_PCI = "/sys/bus/pci/devices"
_THP = "/sys/kernel/mm/transparent_hugepage/enabled"


@dataclass(frozen=True)
class Value:
    """One value of a setting: what it is, what it should be, and the step that would bring it back."""

    actual: str
    wanted: str
    before: Step


def read(key: str, value: str) -> list[Value]:
    """Every value that a setting covers on the current host; none where the node has nothing of the kind."""
    family, _, detail = key.partition(".")
    return _FAMILIES[family](detail, value)


def check(key: str, value: str) -> None:
    """Raise OperationValueError for what boot.conf does not know."""
    if not any(re.fullmatch(pattern, f"{key}={value}") for pattern in _KNOWN):
        raise OperationValueError(f"no such boot setting: {key}={value}")


def _governor(_: str, value: str) -> list[Value]:
    return _files(f"{_CPUS}/cpufreq/scaling_governor", value)


def _c2(_: str, value: str) -> list[Value]:
    return _files(f"{_CPUS}/cpuidle/state2/disable", "1" if value == "disabled" else "0")


def _mtu(interface: str, value: str) -> list[Value]:
    return _files(f"/sys/class/net/{interface}/mtu", value)


def _thp(_: str, value: str) -> list[Value]:
    choices = " ".join(host.get_fact(Contents, patterns=[_THP]).get(_THP) or [])
    found = re.search(r"\[(\w+)\]", choices)
    return [Value(found[1], value, Step("file", _THP, found[1]))] if found else []


def _acs(_: str, __: str) -> list[Value]:
    words = host.get_fact(PciRegisters, register=ACS_CONTROL)
    return [Value(word, "0000", Step("pci", f"{bdf} {ACS_CONTROL}", word)) for bdf, word in words.items()]


def _max_read_request(vendor: str, value: str) -> list[Value]:
    files = host.get_fact(Contents, patterns=[f"{_PCI}/*/{name}" for name in ("infiniband", "physfn", "vendor")])
    words = host.get_fact(PciRegisters, register=DEVICE_CONTROL)
    code = (int(value) // 128).bit_length() - 1 << 12
    found = []
    for bdf, word in words.items():
        folder = f"{_PCI}/{bdf}"
        vendors = files.get(f"{folder}/vendor") or [""]
        if f"{folder}/infiniband" not in files or f"{folder}/physfn" in files:
            continue
        if vendor in ("", vendors[0].removeprefix("0x")):
            bits = int(word, 16) & READ_REQUEST
            before = Step("pci", f"{bdf} {DEVICE_CONTROL}", f"{bits:04x}:{READ_REQUEST:04x}")
            found.append(Value(f"{bits:04x}", f"{code:04x}", before))
    return found


def _module(name: str, _: str) -> list[Value]:
    folder = f"/sys/module/{kernel_name(name)}"
    loaded = folder in host.get_fact(Contents, patterns=[folder])
    return [Value("loaded" if loaded else "absent", "loaded", Step("module", name, "loaded" if loaded else "absent"))]


def _files(pattern: str, wanted: str) -> list[Value]:
    files = host.get_fact(Contents, patterns=[pattern])
    return [Value(lines[0], wanted, Step("file", path, lines[0])) for path, lines in files.items() if lines]


_FAMILIES: dict[str, Callable[[str, str], list[Value]]] = {
    "cpu_governor": _governor,
    "c2": _c2,
    "thp": _thp,
    "acs": _acs,
    "max_read_request": _max_read_request,
    "mtu": _mtu,
    "module": _module,
}
_KNOWN = (
    r"cpu_governor=\w+",
    r"c2=(disabled|enabled)",
    r"thp=(always|madvise|never)",
    r"acs=off",
    r"max_read_request(\.[0-9a-f]{4})?=(128|256|512|1024|2048|4096)",
    r"mtu\.[\w.:@-]+=[1-9]\d*",
    r"module\.\w+=loaded",
)
