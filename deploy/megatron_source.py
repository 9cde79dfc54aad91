"""Megatron-LM from source on workstation GPUs (the adaptation guide), then a smoke run from that checkout.

    pyinfra INVENTORY deploy/megatron_source.py

A site's layer, where `smoke.venv` and the recipe's option `checkout` name what `source` makes:

    "gpu": {"profile": "radeon", "count": 2},
    "source": {
        "url": "https://github.com/NVIDIA/Megatron-LM.git", "commit": "<changeme>", "path": "/opt/megatron-lm",
        "patches": ["patches/remove_nvidia_deps.patch"],
        "venv": "/opt/megatron-venv",
        "install": [
            {"packages": ["torch>=2.6.0"], "index_url": "https://download.pytorch.org/whl/rocm6.2.4"},
            {"requirements": "requirements.txt", "packages": ["tensorboard", "scipy", "nltk"]},
        ],
    },
    "smoke": {"recipe": "radeon-gpt-2gpus", "venv": "/opt/megatron-venv", "options": {"checkout": "/opt/megatron-lm"}},

The document installs requirements.txt first, which brings the usual index's torch for CUDA, and then asks for
torch>=2.0.0 without quotes, which the shell takes for a redirection: here ROCm's torch comes first and is proved to be
ROCm's.
"""

from shakedown.runner import source, stages

stages.examine()
stages.tune()
stages.devices()
source.build()
stages.reboot()
stages.recheck()
stages.smoke()
stages.conclude()
