"""The size of PCI Express read requests (MaxReadReq) of RDMA devices."""

from __future__ import annotations

from typing import Dict, List

from ..pci import DEVICE_CONTROL, DEVICES, READ_REQUEST
from ..setting import Failed, RegisterSetting, setting
from ..tree import Tree, attempt


@setting
class MaxReadRequest(RegisterSetting):
    name = "max_read_request"
    doc = "Bytes that a NIC asks for in one read; behind the dot a PCI vendor, whose RDMA devices alone are meant"
    source = "PCI Express base specification, 7.5.3.4 (device control, bits 14:12); the NIC's profile names the value"
    risk = "disruptive"
    unit = "bytes"
    values = "128|256|512|1024|2048|4096"
    details = "(?:[0-9a-f]{4})?"
    remedy = "set PCIe read requests of {} bytes"
    evidence = "PCI configuration space, device control"
    register = DEVICE_CONTROL
    mask = READ_REQUEST

    def files(self, detail: str) -> List[str]:
        return ["{}/*/{}".format(DEVICES, name) for name in ("infiniband", "physfn", "vendor")]

    def raw(self, value: str) -> str:
        return "{:04x}".format((int(value) // 128).bit_length() - 1 << 12)

    def functions(self, tree: Tree, detail: str) -> Dict[str, int]:
        """Return RDMA devices of the vendor, but no virtual functions: those have no such field of their own."""
        found = {}
        for bdf, word in super().functions(tree, detail).items():
            folder = "{}/{}".format(DEVICES, bdf)
            if not tree.exists(folder + "/infiniband") or tree.exists(folder + "/physfn"):
                continue
            if detail in ("", str(attempt(tree.text, folder + "/vendor"))[2:]):
                found[bdf] = word
        return found

    def make(self, tree: Tree, detail: str, value: str) -> None:
        if not self.functions(tree, detail):
            raise Failed("no RDMA device" + (" of vendor " + detail if detail else ""))
        super().make(tree, detail, value)
