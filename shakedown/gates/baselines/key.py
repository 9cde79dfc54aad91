"""What makes two jobs comparable: a baseline compares equals.

A key has two halves. The `identity` says which job it is: GPU model, recipe with its parameters, node count, scope. The
`epoch` says what it ran on that changes over a machine's life, image, ROCm and amdgpu: another epoch begins a new
baseline.
"""

import hashlib
import json
from datetime import datetime
from typing import Any

from shakedown.common.frozen import Frozen


def digest(values: Any) -> str:
    """Digest, hex, of a document of JSON, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


class Key(Frozen):
    """What a job's figures depend on besides the machines' health. Of nodes that differ every value is named."""

    gpu: str  # the GPUs' market name; of nodes without one the CPU's, after "CPU "
    recipe: str
    parameters: str  # digest, hex: options, environment, runtime, precision, batches, sequence length, parallelism
    nodes: int
    scope: str  # "each", "together"
    node: str | None = None  # of a job of one node by itself
    image: str  # sha256:... where the image is pinned, else its name; "none" for the runtime process
    rocm: str
    driver: str  # amdgpu

    @property
    def epoch(self) -> str:
        """What starts a new baseline when it changes, for a person to read."""
        return f"image {self.image}, ROCm {self.rocm}, amdgpu {self.driver}"

    @property
    def identity(self) -> str:
        """Digest, hex, of all that is not the epoch: equal for jobs that belong to one history."""
        return digest(self.model_dump(exclude={"image", "rocm", "driver"}))


class Earlier(Frozen):
    """One earlier job of the same identity that passed, or of which only baselines did not hold. `figures`: metric ->
    value in the metric's unit; `worse`: the metrics that were worse than their baseline."""

    run_id: str
    at: datetime
    figures: dict[str, float]
    epoch: str
    worse: list[str] = []
