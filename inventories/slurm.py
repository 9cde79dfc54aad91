"""The MI300X nodes of a Slurm cluster that are free now: an example to copy.

Those that are down, drained or allocated are left out, and named with the reason that Slurm has. Run it where Slurm's
commands are, as on a login node.
"""

from shakedown.hosts import slurm

mi300x = (
    slurm("partition=mi300x"),
    {
        "ssh_user": "root",
        "gpu": "mi300x",
        "nic": "thor2",
        "images": {"megatron": "rocm/megatron-lm:v25.5_py310"},
        "smoke": {"recipe": "llama3.1-8b-fp8", "image": "megatron", "via": "slurm"},
        "slurm": {"partition": "mi300x", "time_min": 120},
    },
)
