"""The section `slurm` of the desired state."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator

from shakedown.common.section import Positive, Section, Text, Word

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

    node: Text | None = None
    connect: Literal["ssh", "slurm"] = "ssh"
    allow_allocated: bool = False
    partition: Word | None = None
    reservation: Word | None = None
    account: Word | None = None
    time_min: Positive | None = None
    queue_s: Positive = 3600
    gres: Text | None = None
    options: list[Option] = []

    def options_of_sbatch(self) -> list[str]:
        named = {"partition": self.partition, "reservation": self.reservation, "account": self.account}
        named |= {"time": None if self.time_min is None else str(self.time_min), "gres": self.gres}
        return [*(f"--{name}={value}" for name, value in named.items() if value is not None), *self.options]
