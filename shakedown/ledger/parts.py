"""The parts of a node that have a number of their own, so that a bad one is followed to another slot or node."""

from collections.abc import Iterator
from typing import Literal

from shakedown.common.frozen import Frozen
from shakedown.common.one_line import plain
from shakedown.common.text import printable
from shakedown.gates.baselines.key import digest
from shakedown.state.node import NodeState, is_unreadable

# What board makers leave in the place of a serial number; zeros alone are none either.
_NO_NUMBER = {"", "none", "n/a", "notspecified", "notapplicable", "defaultstring", "tobefilledbyo.e.m.", "unknown"}
_LONGEST = 255


class Part(Frozen):
    """One part, and where it sits."""

    kind: Literal["gpu", "nic", "board"]
    slot: str  # PCI address; of the board nothing
    serial: str  # a GPU's serial, a NIC's node GUID, the board's serial
    model: str
    firmware: str

    @property
    def number(self) -> str:
        """The serial as it is looked for."""
        return plain(self.serial)


def parts_of(state: NodeState) -> list[Part]:
    """Return what of a node can be told from another of its kind. A part whose number could not be read is none: there
    is no following it."""
    found = {(part.kind, part.slot): part for part in _all(state) if part.number not in _NO_NUMBER}
    return [found[place] for place in sorted(found)]


def equipment_of(node: str, parts: list[Part]) -> str:
    """Digest, hex, of a node with its parts, their places and their firmware."""
    return digest([node, *(part.model_dump() for part in parts)])


def _all(state: NodeState) -> Iterator[Part]:
    for gpu in [] if is_unreadable(state.gpus) else state.gpus:
        versions = gpu.firmware
        firmware = "" if is_unreadable(versions) else ", ".join(f"{k} {v}" for k, v in sorted(versions.items()))
        yield _part("gpu", gpu.bdf, gpu.serial, gpu.model, firmware)
    for nic in [] if is_unreadable(state.rdma) else state.rdma:
        if nic.bdf and not nic.physical_function:  # a virtual function sits where its card does
            yield _part("nic", nic.bdf, nic.guid, nic.driver or "", nic.firmware)
    yield _part("board", "", state.system.board_serial, state.system.product, state.system.bios_version)


def _part(kind: Literal["gpu", "nic", "board"], slot: str, *readings: object) -> Part:
    serial, model, firmware = ("" if is_unreadable(reading) else _line(str(reading)) for reading in readings)
    return Part(kind=kind, slot=_line(slot), serial=serial, model=model, firmware=firmware)


def _line(text: str) -> str:
    return " ".join(printable(text, _LONGEST).split())
