"""AMD's PyTorch training benchmark: MAD's scripts at a pinned commit, on each node alone.

    pyinfra inventories/rack.py deploy/pytorch_training.py

The desired state's section `benchmark` says mode, model and precision; what the document excludes is refused.
"""

from shakedown.runner import benchmark, stages

stages.examine()
stages.tune()
stages.devices()
stages.images()
benchmark.checkout()
stages.reboot()
stages.recheck()
benchmark.run()
stages.conclude()
