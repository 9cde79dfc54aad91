"""Writes what AMD's experiment files of Primus say of sizes and parallelism, as the data of the recipes:

    python tests/primus_configurations.py GIT_DIR COMMIT DATE > shakedown/recipes/primus.toml

GIT_DIR is a clone of AMD-AGI/Primus, read at COMMIT (the full hash) of DATE. The values are read by the same function
as a file of the site's own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime

from shakedown.recipes.configurations import read_experiment

FOLDER = "examples/megatron/configs"
MODELS = {  # those of Primus' page on Megatron-LM, and their sisters of the same families
    "llama2_7B": "Llama 2 7B",
    "llama2_70B": "Llama 2 70B",
    "llama3_8B": "Llama 3 8B",
    "llama3_70B": "Llama 3 70B",
    "llama3.1_8B": "Llama 3.1 8B",
    "llama3.1_70B": "Llama 3.1 70B",
    "llama3.1_405B": "Llama 3.1 405B",
    "llama3.3_70B": "Llama 3.3 70B",
    "mixtral_8x7B_v0.1": "Mixtral 8x7B",
    "mixtral_8x22B_v0.1": "Mixtral 8x22B",
    "qwen2.5_7B": "Qwen 2.5 7B",
    "qwen2.5_14B": "Qwen 2.5 14B",
    "qwen2.5_32B": "Qwen 2.5 32B",
    "qwen2.5_72B": "Qwen 2.5 72B",
    "qwen3_8B": "Qwen 3 8B",
    "qwen3_14B": "Qwen 3 14B",
    "qwen3_32B": "Qwen 3 32B",
    "qwen3_30B_A3B": "Qwen 3 30B-A3B",
    "qwen3_235B_A22B": "Qwen 3 235B-A22B",
    "deepseek_v2_lite": "DeepSeek-V2-Lite",
    "deepseek_v2": "DeepSeek-V2",
    "deepseek_v3": "DeepSeek-V3",
    "gpt_oss_20B": "GPT-OSS 20B",
    "gpt_oss_120B": "GPT-OSS 120B",
}
GPUS = {  # AMD's page: MI350X uses the files of MI355X
    "mi300x": ("MI300X", "gfx942"),
    "mi325x": ("MI325X", "gfx942"),
    "mi350x": ("MI355X", "gfx950"),
    "mi355x": ("MI355X", "gfx950"),
}
KEYS = (
    "micro_batch_size",
    "global_batch_size",
    "seq_length",
    "train_iters",
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "use_torch_fsdp2",
    "recompute_granularity",
    "recompute_method",
    "recompute_num_layers",
)
# Nodes for which a file is made: by its own comment, by docs/02-user-guide/megatron-lm-training.md, and where neither
# names a number, the least that the file's parallel sizes need with 8 GPUs each.
NODES = {"MI355X/deepseek_v3": 32, "MI355X/qwen3_235B_A22B": 32, "llama3.1_405B": 8, "mixtral_8x22B_v0.1": 4}
ALONE: dict[str, object] = {"tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1}
# What was merged after the commit: changes of sizes, and new files. The checkout that AMD's page of v26.7 asks for
# (2631e68d) has the changes; the new files came to release/v26.7 later.
LATER: dict[str, tuple[str, dict[str, object]]] = {
    "MI355X/qwen2.5_72B-MXFP4": (
        "Primus' pull request 1119 at bf6d095, in release/v26.7",
        {"micro_batch_size": 1, "global_batch_size": 32, "seq_length": 2048, "train_iters": 50, **ALONE}
        | {"expert_model_parallel_size": 1, "use_torch_fsdp2": "false"},
    ),
    "MI355X/qwen3_30B_A3B-BF16": (
        "Primus' pull request 1011, in release/v26.6 at 00b180d",
        {"recompute_num_layers": 0},
    ),
    "MI355X/qwen3_30B_A3B-FP8": (
        "Primus' pull request 1011, in release/v26.6 at 00b180d",
        {"micro_batch_size": 8, "global_batch_size": 512, "recompute_num_layers": 0},
    ),
    "MI355X/qwen3_30B_A3B-MXFP4": (
        "Primus' pull request 1119 at c83e521, in release/v26.7",
        {"micro_batch_size": 8, "global_batch_size": 512, "seq_length": 4096, "train_iters": 50, **ALONE}
        | {"expert_model_parallel_size": 8},
    ),
    "MI355X/gpt_oss_20B-FP8": (
        "Primus' pull request 1045 at bf6d095, in v26.7.0",
        {"micro_batch_size": 10, "global_batch_size": 80},
    ),
}
HEAD = """\
# Written by tests/primus_configurations.py: sizes and parallelism of AMD's experiment files for Primus.
source = "https://github.com/AMD-AGI/Primus"
commit = "{commit}"
date = "{date}"
read = "{read}"
path = "{folder}/{{folder}}/{{experiment}}-pretrain.yaml"

[gpus]
{gpus}

[unsupported.gfx942]
MXFP8 = "gfx942 has no MX formats"
MXFP4 = "gfx942 has no MX formats"
"""


def _git(directory: str, *words: str) -> str:
    return subprocess.run(["git", "--git-dir", directory, *words], check=True, capture_output=True, text=True).stdout


def _nodes(folder: str, model: str, options: dict[str, object]) -> int:
    documented = NODES.get(f"{folder}/{model}") or NODES.get(model)
    tensor, pipeline, expert = (
        int(str(options.get(f"{part}_model_parallel_size", 1))) for part in ("tensor", "pipeline", "expert")
    )
    return documented or -(-tensor * pipeline * expert // 8) or 1


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def main(directory: str, commit: str, date: str) -> None:
    gpus = "\n".join(f'{name} = {{ folder = "{folder}", arch = "{arch}" }}' for name, (folder, arch) in GPUS.items())
    print(HEAD.format(commit=commit, date=date, read=datetime.now(UTC).date(), folder=FOLDER, gpus=gpus))
    named = re.compile(rf"{FOLDER}/(\w+)/({'|'.join(map(re.escape, MODELS))})-((?:BF|FP|MXFP)\d+)-pretrain\.yaml")
    there = _git(directory, "ls-tree", "-r", "--name-only", commit, FOLDER).splitlines()
    every = dict.fromkeys([*there, *(f"{FOLDER}/{name}-pretrain.yaml" for name in LATER)])
    paths = [match for path in every if (match := named.fullmatch(path))]
    order = list(MODELS)
    paths.sort(key=lambda match: (order.index(match[2]), match[3], match[1]))
    print("[titles]")
    for model, precision in dict.fromkeys((match[2], match[3]) for match in paths):
        print(f'"{model}-{precision}" = "{MODELS[model]} {precision}"')
    for match in paths:
        source, values = LATER.get(f"{match[1]}/{match[2]}-{match[3]}", ("", {}))
        if match[0] in there:
            experiment = read_experiment(_git(directory, "show", f"{commit}:{match[0]}"), KEYS.__contains__)
            assert experiment.precision == match[3], match[0]
            values = {**experiment.options, **values}
        print(f'\n[files."{match[0]}"]')
        print(f'model = "{match[2]}"\nprecision = "{match[3]}"')
        if (nodes := _nodes(match[1], match[2], values)) > 1:
            print(f"nodes = {nodes}")
        if source:
            print(f'source = "{source}"')
        options = [f"{key} = {_toml(values[key])}" for key in KEYS if key in values]
        lines = [", ".join(options[:5]), ", ".join(options[5:])]
        print(f"options = {{ {', '.join(filter(None, lines))} }}")


if __name__ == "__main__":
    main(*sys.argv[1:])
