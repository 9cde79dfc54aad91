"""python -m tests.demo_node: write the node of `shakedown demo`, shakedown/runner/demo/node.json.

What tests/data/machines has of public machines is taken from there: the places of the GPUs on the PCI bus, the compute
driver's topology, the names of the NICs' error counters. What no public source shows is completed by hand, as the
healthy node of tests/states.py has it; the file lists those parts.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from shakedown.node.rdma import ERROR_NAME
from shakedown.runner.demo.scenario import SITE
from shakedown.state.node import NodeState
from tests.states import healthy, with_health

FILE = Path(__file__).parents[1] / "shakedown/runner/demo/node.json"
MACHINES = Path(__file__).parent / "data" / "machines"
_DEVICE = "74a1"  # of an MI300X
_NIC = "thor2"
IMAGE = str(SITE["images"]["megatron"])


def made() -> str:
    """The file, as its sources make it."""
    machines = tomllib.loads((MACHINES / "kfd.toml").read_text())["machine"]
    (machine,) = [machine for machine in machines if machine["pci_device"] == _DEVICE]
    counters = (MACHINES / "counters.toml").read_text()
    errors = [name for name in tomllib.loads(counters)[_NIC]["errors"] if ERROR_NAME.search(name)]
    places = sorted({(domain, place >> 8) for simds, domain, place, _ in machine["kfd"] if simds})
    state: dict[str, Any] = healthy(1, len(places), len(places)).model_dump(mode="json")
    for (domain, bus), gpu, nic in zip(places, state["gpus"], state["rdma"], strict=True):
        gpu["bdf"], gpu["pci_id"] = f"{domain:04x}:{bus:02x}:00.0", f"1002:{_DEVICE}"
        nic["bdf"] = f"{domain:04x}:{bus + 1:02x}:00.0"
    state = with_health(NodeState.model_validate(state, strict=False)).model_dump(mode="json")
    state["kfd"] = {"gpus": machine["gpus"], "gpu_nodes": machine["gpus"], "cpu_nodes": machine["cpu_nodes"]}
    state["counters"] = {f"rdma/{nic['name']}/{name}": 0 for nic in state["rdma"] for name in errors}
    state["system"] |= {"product": "SIMULATED PowerEdge XE9680", "monotonic_s": 5000.0}
    state["containers"]["images"] = [
        {
            "id": f"sha256:{'3e' * 32}",
            "tags": [IMAGE],
            "digests": [f"{IMAGE.partition(':')[0]}@sha256:{'5d' * 32}"],
            "size_bytes": 40 << 30,
            "labels": {},
        }
    ]
    sources = {
        "gpus.*.bdf, gpus.*.pci_id, kfd": f"{machine['name']}: {machine['source']}",
        "counters": " ".join(line.lstrip("# ") for line in counters.splitlines()[:2]),
    }
    public = {"bdf", "pci_id"}
    by_hand = [name for name in state if name not in ("gpus", "kfd", "counters")]
    by_hand += [f"gpus.*.{name}" for name in state["gpus"][0] if name not in public]
    document = {"made by": "python -m tests.demo_node", "sources": sources, "by hand": by_hand, "state": state}
    return json.dumps(document, indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(made())
