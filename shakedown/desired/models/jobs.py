"""What runs on the nodes: the smoke run, trials, the burn-in, AMD's PyTorch training benchmark."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from shakedown.common.section import Positive, Section, Text, key
from shakedown.desired.values import Commit, Day, Environment, Interface, JobVia, Share, ShmSize, Volumes
from shakedown.hosts import nodes

EACH: Literal["each"] = "each"
TOGETHER: Literal["together"] = "together"
_VIA = key(
    "ssh", "how jobs are started: over SSH, or in an allocation of a scheduler (the section of that name)", "slurm"
)


class Smoke(Section):
    """The smoke run: which recipe, on how many nodes, judged by which figures."""

    recipe: Text = key(..., "the recipe, by its name", "llama3.1-8b-fp8")
    scope: list[Literal["each", "together"]] = key(
        [TOGETHER], "one job over all nodes, or a single-node job on each, or both, in this order", ["each", "together"]
    )
    via: JobVia = _VIA
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
    shm_size: ShmSize | None = key(None, "size of the container's /dev/shm, over the recipe's", "64G", unit="bytes")
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


class Trials(Section):
    """Short measurements of each node and between nodes, before the smoke run."""

    only: list[Text] = key([], "the trials to run, by name; empty: all that there are", ["gemm", "memory", "pairs"])
    repetitions: Annotated[int, Field(ge=1, le=100)] = key(
        3, "how often each figure is taken; what is named is so in every one of them", 3
    )
    slower: Annotated[float, Field(gt=0, lt=1)] = key(
        0.1, "fraction below the median of its peers from which a part is named; half of it is reported", 0.1
    )
    floors: dict[Text, float] = key(
        {},
        "TRIAL.FIGURE -> bound in the trial's unit, over the published ones; at most for times",
        {"gemm.bf16": 600.0},
    )
    racks: dict[Text, Text] = key(
        {},
        "nodes (also ranges) -> what they hang on together, such as their leaf switch: pairs are read by these too",
        {"node[01-16].rack7": "leaf1"},
    )
    via: JobVia = _VIA
    limit_s: Positive = key(60, "time in which a part has to give its next figure, or is ended", 60, unit="s")
    exclude: bool = key(False, "leave the nodes that a trial names out of the smoke run", True)

    @field_validator("racks", mode="before")
    @classmethod
    def _ranges(cls, value: object) -> object:
        if not isinstance(value, dict) or not all(isinstance(hosts, str) for hosts in value):
            return value
        return {host: rack for hosts, rack in value.items() for host in nodes(hosts)}


class Soak(Section):
    """A burn-in: load on every part for hours, with its counters of errors watched."""

    time: Text = key("24h", "how long nodes are loaded, besides checks and trials; `--for` comes first", "4h")
    only: list[Text] = key([], "the stages, by name; empty: all that apply", ["cpu", "memory"])
    scratch: Annotated[str, Field(pattern=r"^/[^\x00-\x1f{}]*$")] | None = key(
        None, "a folder on the nodes in which the disk test makes its own; else the run's folder", "/scratch"
    )
    memory: Annotated[float, Field(gt=0, le=0.9)] = key(0.7, "fraction of the free memory that is filled", 0.5)
    via: JobVia = _VIA


class Benchmark(Section):
    """AMD's PyTorch training benchmark on single nodes, as its document has it; deploy/pytorch_training.py."""

    mode: Literal["pretrain", "finetune_fw", "finetune_lora"] = key(
        ..., "what is measured", "pretrain", source="pytorch-training"
    )
    model: Literal["Llama-3.1-8B", "Llama-3.1-70B", "Flux"] = key(
        ..., "the model; which modes and precisions it has is the document's", "Llama-3.1-8B", source="pytorch-training"
    )
    precision: Literal["BF16", "FP8"] = key(..., "precision of the training", "BF16", source="pytorch-training")
    seq_length: Annotated[int, Field(ge=2048, le=8192)] | None = key(
        None, "sequence length; None: the script's own", 8192, unit="tokens"
    )
    image: Text = key(..., "a name in images", "pytorch")
    commit: Commit = key(
        "151b30f68b1d7e2c28d28d37e9f9abfc1e6e6d9d",
        "commit of ROCm/MAD: an image needs the scripts of its time. The default is the newest "
        "one whose report script was read (2026-11-21)",
        "151b30f68b1d7e2c28d28d37e9f9abfc1e6e6d9d",
    )
    url: Text = key(
        "https://github.com/ROCm/MAD",
        "the git repository of the scripts",
        "https://git.example.org/mirrors/MAD",
        source="pytorch-training",
    )
    checkout: Text = key("/opt/mad", "the checkout, on the nodes", "/opt/mad")
    setup: bool = key(
        True,
        "run pytorch_benchmark_setup.sh first (libraries, models, data: some hundred "
        "gigabytes), and verify what it made",
        False,
    )
    hf_token_file: Text | None = key(
        None, "file of one line on the controller, for its owner alone: the Hugging Face token", "~/.config/hf.token"
    )
    expect: dict[Text, float] = key(
        {}, "metric -> bound; whether at least or at most is the metric's", {"tokens_per_gpu": 6000.0}
    )
    privileged: bool = key(False, "run the container privileged, as documented", True)
    devices: list[Text] | None = key(None, "devices of the container; None: as documented", ["/dev/kfd", "/dev/dri"])
    volumes: Volumes = key({}, "host path -> container path, with :ro and the like behind it", {"/data": "/data"})
    timeout_s: Positive = key(14400, "time of the whole benchmark", 14400, unit="s")

    def smoke(self) -> Smoke:
        """Return the smoke run that this is: the recipe of MAD's scripts on each node alone, which limit themselves."""
        options = ("mode", "model", "precision", "seq_length", "setup", "commit")
        same = ("image", "expect", "privileged", "devices", "hf_token_file", "timeout_s")
        return Smoke(
            recipe="pytorch-training",
            scope=[EACH],
            options=self.model_dump(include=set(options), exclude_none=True),
            volumes={self.checkout: "/mad:ro", **self.volumes},
            baseline="off",
            telemetry_s=None,
            start_timeout_s=self.timeout_s,
            stall_timeout_s=self.timeout_s,
            **{name: getattr(self, name) for name in same},
        )
