"""Stanford Megatron-LM: its image by digest, its supported GPUs, then a smoke run.

    pyinfra inventories/rack.py deploy/stanford_megatron.py

The desired state names the image by digest and one of the recipes stanford-bert, stanford-gpt, stanford-gpt-moe,
stanford-t5 and stanford-ict. MI300X is supported; MI250X and MI210 in part, which is drift in the finding `support`.
"""

from shakedown.runner import stages

stages.examine()
stages.tune()
stages.devices()
stages.drivers()
stages.images()
stages.reboot()
stages.recheck()
stages.smoke()
stages.conclude()
