"""The smoke run."""

import re
from datetime import date
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from shakedown.common.section import matching
from shakedown.desired.models.schedulers import JobVia
from shakedown.desired.models.section import Section, key
from shakedown.desired.models.values import Environment, Interface, Positive, Volumes
from shakedown.desired.names import Text
from shakedown.desired.sizes import UNIT

EACH: Literal["each"] = "each"
TOGETHER: Literal["together"] = "together"


def _a_day(value: str) -> str:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        raise ValueError("a day as 2026-11-01")
    date.fromisoformat(value)
    return value


Day = Annotated[str, AfterValidator(_a_day)]
Share = Annotated[float, Field(gt=0, le=10)]

_SHM_SIZE = re.compile(r"[1-9][0-9]*[bkmgBKMG]")  # as container engines read it


class Smoke(Section):
    """The smoke run: which recipe, on how many nodes, judged by which figures."""

    recipe: Text = key(..., "the recipe, by its name", "llama3.1-8b-fp8")
    scope: list[Literal["each", "together"]] = key(
        [TOGETHER], "one job over all nodes, or a single-node job on each, or both, in this order", ["each", "together"]
    )
    via: JobVia = key(
        "ssh",
        "how jobs are started: over SSH, or in an allocation of a scheduler (the section of that name)",
        "slurm",
    )
    isolate: bool = key(
        False, "after a training over all nodes that failed, search for the node or link that makes it fail", True
    )
    exclude: Literal["suspects"] | None = key(
        None, "leave out the nodes that the last search over this inventory named; None: no node", "suspects"
    )
    runtime: Literal["container", "process"] | None = key(
        None, "containers, or processes in a virtual environment; None: as the recipe says", "container"
    )
    image: Text | None = key(None, "a name in images: the job's container image", "megatron")
    min_nodes: Positive | None = key(
        None,
        "train together without the nodes that failed, down to this many; None: with all or not at all",
        6,
        unit="nodes",
    )
    ranks_per_node: Positive | None = key(
        None, "ranks of a node; None: one per GPU, or as the recipe says", 8, unit="ranks"
    )
    iterations: Annotated[int, Field(ge=4)] | None = key(
        None, "iterations of the job; fewer than 4 leave no steady one. None: as the recipe says", 50
    )
    options: dict[Text, bool | int | float | str] = key(
        {}, "options of the recipe, or any argument of its program", {"MBS": 2}
    )
    environment: Environment = key({}, "variables of the job, over all others", {"NCCL_DEBUG": "INFO"})
    not_secret: list[Text] = key(
        [],
        "variables and options that are shown and kept, though their names look like a secret's",
        ["ROUTING_KEY"],
    )
    expect: dict[Text, float] = key(
        {},
        "metric -> bound, over the recipe's own figures; whether at least or at most is the metric's",
        {"throughput_per_gpu": 380.0},
    )
    expect_nodes: Positive | None = key(
        None,
        "expect holds for a job over this many nodes; with another number it is shown and not judged",
        1,
        unit="nodes",
    )
    baseline: Literal["off", "record", "judge"] = key(
        "record",
        "compare the figures with earlier passes of the same job: not at all, for information, or as gates",
        "judge",
    )
    baseline_since: Day | None = key(
        None, "earlier passes than this do not count: after a change that is the new normal", "2026-11-01"
    )
    baseline_by: Text | None = key(
        None, "who accepted what is since baseline_since as the new normal, for the evidence", "A. Smith, ticket 1234"
    )
    steady: bool = key(
        True, "judge how evenly the iterations follow each other; off where other work shares the nodes", False
    )
    scaling: Annotated[float, Field(gt=0, le=2)] | None = key(
        None,
        "share of what the nodes do alone in sum that they must do together; alone: scope each, or earlier runs",
        0.9,
    )
    seen_nodes: Positive | None = key(None, "fewer nodes than this in the inventory are a failure", 8, unit="nodes")
    privileged: bool = key(False, "run the container privileged, where the recipe's document does", True)
    shm_size: Annotated[str, AfterValidator(matching(_SHM_SIZE, UNIT))] | None = key(
        None, "size of the container's /dev/shm, over the recipe's", "64G", unit="bytes"
    )
    volumes: Volumes = key(
        {},
        "host path -> container path, with :ro and the like behind it; {home} is the job's user's home",
        {"/data": "/data:ro"},
    )
    devices: list[Text] | None = key(
        None, "devices of the container; None: as the recipe says", ["/dev/kfd", "/dev/dri"]
    )
    hf_token_file: Text | None = key(
        None, "file of one line on the controller, for its owner alone: the Hugging Face token", "~/.config/hf.token"
    )
    interface: Interface | None = key(
        None, "network interface of the rendezvous; None: the one of each node that routes to the master", "ens50f0"
    )
    master_port: Annotated[int, Field(gt=0, lt=65536)] | None = key(
        None, "port of the rendezvous; None: one that is free on the master", 29500
    )
    venv: Text | None = key(None, "runtime process: the virtual environment on the nodes", "/opt/megatron/venv")
    telemetry_s: Annotated[float, Field(ge=0.2, le=60)] | None = key(
        2.0, "time between two samples of each node while the job runs; None: none are taken", 2.0, unit="s"
    )
    stragglers: Literal["off", "told", "gate"] = key(
        "told",
        "measure each rank's own time where the program can: not at all, reported, or judged too; of others than the"
        " small GPT only where it is judged, since Megatron's --log-straggler opens a port",
        "gate",
    )
    straggler_notice: Share = key(0.05, "share by which a node's ranks need longer than their peers: reported", 0.05)
    straggler_warn: Share = key(0.10, "the same, reported as a warning", 0.10)
    straggler_fail: Share = key(0.33, "the same, from which a node fails where it is judged", 0.33)
    start_timeout_s: Positive = key(600, "time to the first iteration", 600, unit="s")
    stall_timeout_s: Positive = key(300, "time between two iterations", 300, unit="s")
    timeout_s: Positive = key(7200, "time of the whole job", 7200, unit="s")
    unreachable_s: Positive = key(
        20, "time without an answer of a node until the job is stopped; the node ends its own part later", 20, unit="s"
    )

    @field_validator("scope", mode="before")
    @classmethod
    def _one_or_both(cls, value: object) -> object:
        scopes = [value] if isinstance(value, str) else value
        if scopes not in ([EACH], [TOGETHER], [EACH, TOGETHER]):
            raise ValueError('"each", "together", or ["each", "together"]: who fails alone is not taken along')
        return scopes
