"""AMD's PyTorch training benchmark."""

from typing import Annotated, Literal

from pydantic import Field

from shakedown.desired.models.section import Section, key
from shakedown.desired.models.smoke import EACH, Smoke
from shakedown.desired.models.values import Positive, Volumes
from shakedown.desired.names import Text


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
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] = key(
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
