"""The rack that `make lab-up` leaves standing on this machine (tests/lab/README.md): it trains on its CPUs.

pyinfra inventories/lab.py deploy/megatron.py -y
"""

from pathlib import Path
from runpy import run_path

racks = sorted(Path("/run/sdlab").glob("*/standing"))
if not racks:
    raise SystemExit("no rack is standing; make one with: make lab-up")

hosts, _ = run_path(str(racks[0].with_name("lab.py")))["lab"]
del racks

lab = (
    hosts,
    {
        "gpu": "cpu",
        "smoke": {
            "recipe": "gpt-small",
            "ranks_per_node": 1,
            "environment": {"OMP_NUM_THREADS": "1"},  # the nodes share the machine's cores and do not know it
        },
    },
)
del hosts
