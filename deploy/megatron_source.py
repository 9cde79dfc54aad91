"""Megatron-LM from source on workstation GPUs (003_0a3315a3b831cc61.txt), then a smoke run from that checkout.

    pyinfra inventories/radeon.py deploy/megatron_source.py

The desired state's section `source` names repository, commit, patches and packages; `smoke.venv` and the recipe's
option `checkout` name the same places.
"""

from deploy import documented, source, stages

stages.examine()
documented.recipe_of("radeon")
stages.tune()
stages.devices()
source.build()
stages.reboot()
stages.settle()
stages.smoke()
stages.conclude()
