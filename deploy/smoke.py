"""Let the nodes train together as they are, and judge the run: the end of deploy/megatron.py alone.

    pyinfra inventories/rack.py deploy/smoke.py

Changes no setting. `shakedown run --batch 10%` ends with it, over all nodes that came through.
"""

from shakedown.runner import data, stages, trials

stages.examine()
trials.measure()
data.shared_cache()
stages.smoke()
stages.conclude()
