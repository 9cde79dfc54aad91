"""Everything but the training: bring nodes into their desired state, read them again, and stop.

    pyinfra inventories/rack.py deploy/bringup.py

The same stages as deploy/megatron.py, up to its smoke run; `shakedown run --no-smoke` is the same.
"""

from shakedown.runner import data, stages

stages.examine()
stages.tune()
stages.devices()
stages.drivers()
stages.images()
data.datasets()
stages.reboot()
stages.recheck()
