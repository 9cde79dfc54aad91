"""The GPU compute driver."""

from typing import Any

from shakedown.facts.base import Fact


class Kfd(Fact[dict[str, Any]]):
    """
    Returns ``/dev/kfd`` as it is, and how many nodes with and without SIMDs the driver's topology has. ``device`` is
    ``None`` where the file is missing: the driver is not loaded, or found no GPU.

    .. code:: python

        {
            "device": {"kind": "character special file", "mode": "0660", "owner": "root", "group": "render"},
            "gpu_nodes": 8,
            "cpu_nodes": 2,
        }
    """

    def command(self) -> str:
        return (
            "stat -c 'device|%F|%a|%U|%G' /dev/kfd 2>/dev/null; "
            "grep -hs '^simd_count' /sys/class/kfd/kfd/topology/nodes/*/properties; echo end"
        )

    def process(self, output: list[str]) -> dict[str, Any]:
        device = None
        simds: list[int] = []
        for line in output:
            if line.startswith("device|"):
                _, kind, mode, owner, group = line.split("|")
                device = {"kind": kind, "mode": mode.zfill(4), "owner": owner, "group": group}
            elif line.startswith("simd_count"):
                simds.append(int(line.split()[1]))
        gpus = sum(count > 0 for count in simds)
        return {"device": device, "gpu_nodes": gpus, "cpu_nodes": len(simds) - gpus}
