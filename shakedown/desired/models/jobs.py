"""What runs on the nodes (smoke run, trials, burn-in, AMD's benchmark), and how nodes are kept in service."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from shakedown.common.section import MountPath, Positive, Section, Text
from shakedown.desired.values import (
    SIZE,
    Amount,
    Commit,
    Day,
    Environment,
    Interface,
    JobVia,
    SchedulerName,
    Share,
    ShmSize,
    Some,
    Volumes,
)
from shakedown.hosts import globs, nodes

EACH: Literal["each"] = "each"
TOGETHER: Literal["together"] = "together"


class Smoke(Section):
    """The smoke run: which recipe, on how many nodes, judged by which figures."""

    recipe: Text
    scope: list[Literal["each", "together"]] = [TOGETHER]
    via: JobVia = "ssh"
    isolate: bool = False
    exclude: Literal["suspects"] | None = None
    runtime: Literal["container", "process"] | None = None
    image: Text | None = None
    min_nodes: Positive | None = None
    ranks_per_node: Positive | None = None
    iterations: Annotated[int, Field(ge=4)] | None = None
    options: dict[Text, bool | int | float | str] = {}
    environment: Environment = {}
    not_secret: list[Text] = []
    expect: dict[Text, float] = {}
    expect_nodes: Positive | None = None
    baseline: Literal["off", "record", "judge"] = "record"
    baseline_since: Day | None = None
    baseline_by: Text | None = None
    steady: bool = True
    scaling: Annotated[float, Field(gt=0, le=2)] | None = None
    seen_nodes: Positive | None = None
    privileged: bool = False
    shm_size: ShmSize | None = None
    volumes: Volumes = {}
    devices: list[Text] | None = None
    hf_token_file: Text | None = None
    interface: Interface | None = None
    master_port: Annotated[int, Field(gt=0, lt=65536)] | None = None
    venv: Text | None = None
    telemetry_s: Annotated[float, Field(ge=0.2, le=60)] | None = 2.0
    stragglers: Literal["off", "told", "gate"] = "told"
    straggler_notice: Share = 0.05
    straggler_warn: Share = 0.10
    straggler_fail: Share = 0.33
    start_timeout_s: Positive = 600
    stall_timeout_s: Positive = 300
    timeout_s: Positive = 7200
    unreachable_s: Positive = 20

    @field_validator("scope", mode="before")
    @classmethod
    def _one_or_both(cls, value: object) -> object:
        scopes = [value] if isinstance(value, str) else value
        if scopes not in ([EACH], [TOGETHER], [EACH, TOGETHER]):
            raise ValueError('"each", "together", or ["each", "together"]: who fails alone is not taken along')
        return scopes


class Trials(Section):
    """Short measurements of each node and between nodes, before the smoke run."""

    only: list[Text] = []
    repetitions: Annotated[int, Field(ge=1, le=100)] = 3
    slower: Annotated[float, Field(gt=0, lt=1)] = 0.1
    floors: dict[Text, float] = {}
    racks: dict[Text, Text] = {}
    via: JobVia = "ssh"
    limit_s: Positive = 60
    exclude: bool = False

    @field_validator("racks", mode="before")
    @classmethod
    def _ranges(cls, value: object) -> object:
        if not isinstance(value, dict) or not all(isinstance(hosts, str) for hosts in value):
            return value
        return {host: rack for hosts, rack in value.items() for host in nodes(hosts)}


class Soak(Section):
    """A burn-in: load on every part for hours, with its counters of errors watched."""

    time: Text = "24h"
    only: list[Text] = []
    scratch: Annotated[str, Field(pattern=r"^/[^\x00-\x1f{}:\\]*$")] | None = None
    memory: Annotated[float, Field(gt=0, le=0.9)] = 0.7
    via: JobVia = "ssh"


class Benchmark(Section):
    """AMD's PyTorch training benchmark on single nodes, as its document has it; deploy/pytorch_training.py."""

    mode: Literal["pretrain", "finetune_fw", "finetune_lora"]
    model: Literal["Llama-3.1-8B", "Llama-3.1-70B", "Flux"]
    precision: Literal["BF16", "FP8"]
    seq_length: Annotated[int, Field(ge=2048, le=8192)] | None = None
    image: Text
    commit: Commit = "151b30f68b1d7e2c28d28d37e9f9abfc1e6e6d9d"
    url: Text = "https://github.com/ROCm/MAD"
    checkout: Text = "/opt/mad"
    setup: bool = True
    hf_token_file: Text | None = None
    expect: dict[Text, float] = {}
    privileged: bool = False
    devices: list[Text] | None = None
    volumes: Volumes = {}
    timeout_s: Positive = 14400

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


class Rolling(Section):
    """How `shakedown run` goes through the nodes: the same on every host of a run, and the command line wins."""

    batch: Some | None = None
    max_failed: Amount | None = None
    tries: Annotated[int, Field(ge=1, le=20)] = 5


class Bmc(Section):
    """The site's own command that takes a node's power away and gives it back. It runs on the controller."""

    command: Annotated[list[Text], Field(min_length=1, max_length=64)]
    password_file: Text | None = None
    password_env: Text | None = None
    password_as: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = "BMC_PASSWORD"
    timeout_s: Positive = 120
    unasked: bool = False


class Service(Section):
    """The way back into service, `shakedown service`: what may be done with nodes that are suspect."""

    scheduler: SchedulerName | None = None
    drain: Literal["never", "propose", "yes"] = "never"
    at_once: Some = "1"
    stop_at: Some = "25%"
    rungs: list[Literal["mend", "reload driver", "reboot", "power cycle"]] = ["mend"]
    back_s: Positive = 900
    bmc: Bmc | None = None


class Agent(Section):
    """The timer on each node that checks it without the controller, deploy/agent.py."""

    state: Literal["present", "absent"] = "present"
    every_s: Annotated[int, Field(ge=30, le=86400)] = 600
    delay_s: Annotated[int, Field(ge=0, le=3600)] = 120
    timeout_s: Annotated[int, Field(ge=10, le=3600)] = 120
    memory_bytes: Annotated[Positive, SIZE] = 256 << 20
    stale_after_s: Positive | None = None
    textfile: MountPath | None = None
    remedy: Literal["none", "safe"] = "none"
    remedies_per_day: Annotated[int, Field(ge=1, le=100)] = 3

    @property
    def stale_s(self) -> int:
        """Age from which a verdict says nothing about the node any more, seconds."""
        return self.stale_after_s or (5 * (self.every_s + self.delay_s) + 2 * self.timeout_s) // 2


def _expanded(words: list[str]) -> list[str]:
    return [name for word in words for name in globs(word)]


class Waiver(Section):
    """One known exception: what is waived, where, why, by whom, and until when."""

    finding: Text | None = None
    entry: Text | None = None
    hosts: Annotated[list[Text], AfterValidator(_expanded)] = []
    parts: list[Text] = []
    reason: Text
    owner: Text
    until: Day

    @model_validator(mode="after")
    def _names_one_thing(self) -> "Waiver":
        if (self.finding is None) == (self.entry is None):
            raise ValueError("either finding or entry")
        if not self.hosts and not self.parts:
            raise ValueError("hosts or parts: a waiver names where it holds")
        return self


class Signing(Section):
    """The site's signature on each run and check that is kept: the same on every host of a run."""

    key_file: Text
    require_readings: bool = False
