"""A rack of eight MI300X nodes with Broadcom Thor2 NICs: an example to copy.

The profiles bring the host settings, the GPU and NIC figures and the environment; the rack's own layer says only what
is the site's. `shakedown show inventories/rack.py node03.rack7` prints the result, value by value, with its layer.
"""

from shakedown.hosts import nodes

rack7 = (
    nodes("node[01-08].rack7"),
    {
        "ssh_user": "root",
        "gpu": "mi300x",
        "nic": "thor2",
        "images": {"megatron": "rocm/megatron-lm:v25.5_py310"},
        "smoke": {"recipe": "llama3.1-8b-fp8", "image": "megatron"},
    },
)
