"""Bring every node of the inventory into its desired state, then let them train together and judge the run.

    pyinfra inventories/rack.py deploy/megatron.py

pyinfra's own options hold: --dry shows every finding and every change and changes nothing, --diff, --limit, -v, -y.
"""

from shakedown.runner import data, stages, trials

stages.examine()
stages.tune()
stages.devices()
stages.drivers()
stages.images()
data.datasets()
stages.reboot()
stages.recheck()
trials.measure()
data.shared_cache()
stages.smoke()
stages.conclude()
