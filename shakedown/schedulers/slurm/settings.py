"""The section `slurm` of the desired state."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator

from shakedown.common.section import Positive, Section, Text, Word, key

# Slurm's own directives must not be undone: which nodes, and all of them for us alone.
_OURS_OF_SBATCH = {"nodelist", "nodes", "exclude", "ntasks", "ntasks-per-node", "wrap", "array", "output", "error"}
_OURS_OF_SBATCH |= {"job-name", "parsable", "export", "wait", "chdir"}


def _option(text: str) -> str:
    if not re.fullmatch(r"--[a-z][a-z-]{1,40}(=[^\x00-\x1f]{0,400})?", text):
        raise ValueError('a long option of sbatch with its value behind "=", as "--qos=high"')
    if text[2:].split("=")[0] in _OURS_OF_SBATCH:
        raise ValueError("another option: this one is set for every job")
    return text


Option = Annotated[str, AfterValidator(_option)]


class Settings(Section):
    """Slurm, where it owns the nodes: with what jobs are submitted there, and what of its nodes may be touched."""

    node: Text | None = key(None, "the node's name in Slurm; None: its name in the inventory", "node01")
    connect: Literal["ssh", "slurm"] = key(
        "ssh",
        "how the node is reached at all: over SSH, or within an allocation that lasts as long as the run",
        "slurm",
    )
    allow_allocated: bool = key(
        False, "change nodes on which another user's job runs; otherwise such a node is left as it is, and fails", True
    )
    partition: Word | None = key(None, "partition of the jobs; None: the cluster's default", "mi300x")
    reservation: Word | None = key(None, "reservation that the jobs run in", "maintenance")
    account: Word | None = key(None, "account that the jobs are charged to; None: the user's default", "bringup")
    time_min: Positive | None = key(
        None, "time limit of a job over all that runs in it; None: the partition's default", 120, unit="min"
    )
    queue_s: Positive = key(3600, "time that a job may wait in the queue until it is cancelled", 3600, unit="s")
    gres: Text | None = key(
        None,
        "generic resources of each node; None: all GPUs that Slurm has there, of the node with the fewest",
        "gpu:8",
    )
    options: list[Option] = key([], "further options of sbatch", ["--qos=high"])

    def options_of_sbatch(self) -> list[str]:
        """Return what the section adds to sbatch's command line."""
        named = {"partition": self.partition, "reservation": self.reservation, "account": self.account}
        named |= {"time": None if self.time_min is None else str(self.time_min), "gres": self.gres}
        return [*(f"--{name}={value}" for name, value in named.items() if value is not None), *self.options]
