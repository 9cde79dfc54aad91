"""A rack of the lab on this machine (tests/lab/README.md): the one that `make lab-up` left standing, or $SHAKEDOWN_LAB.

    pyinfra inventories/lab.py deploy/megatron.py -y
    pyinfra inventories/lab.py deploy/megatron.py -y --data smoke='{"iterations": 100}'

Its nodes train the small GPT on their CPUs, one rank each: in containers where the rack has engines and a registry with
the training image, else as processes.
"""

import json
import os
from pathlib import Path
from typing import Any

_standing = sorted(Path("/run/sdlab").glob("*/standing"))
_folder = os.environ.get("SHAKEDOWN_LAB") or (_standing[0].parent if _standing else None)
if _folder is None:
    raise SystemExit("no rack is standing; make one with: make lab-up")

_card = json.loads(Path(_folder, "rack.json").read_text())

_data: dict[str, Any] = {
    "gpu": "cpu",
    "smoke": {
        "recipe": "gpt-small",
        "ranks_per_node": 1,
        "steady": False,  # other work takes turns on the cores
        "environment": {"OMP_NUM_THREADS": "1"},  # the nodes share the machine's cores and do not know it
    },
}
if _card["image"]:
    _data["images"] = {"training": {"reference": _card["image"], "insecure": True}}
    _data["smoke"] |= {"runtime": "container", "image": "training"}

if _card["hosts"].get("vms"):  # emulated: a thousandth of a CPU's speed, and slow to answer while it computes
    _data["smoke"] |= {
        "unreachable_s": 180,  # each answer costs it a second or two, and it is asked twenty times in this
        "options": {
            "hidden_size": 32,
            "num_layers": 1,
            "num_attention_heads": 2,
            "vocab_size": 64,
            "seq_length": 32,
            "micro_batch_size": 1,
        },
    }

# Nodes are compared within their own group: kinds differ, as generations of a rack do. One job joins them all.
nodes, vms = (list(_card["hosts"].get(_kind, {}).items()) for _kind in ("nodes", "vms"))
lab = (nodes + vms, _data)
