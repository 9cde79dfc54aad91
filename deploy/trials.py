"""Measure every node alone and nodes in pairs, and judge the figures against the fleet. Changes no setting.

    pyinfra inventories/rack.py deploy/trials.py -y

The desired state's section `trials` says which trials, how often, and by what they are judged; without one all are run.
"""

from shakedown.runner import trials

trials.measure(always=True)
trials.conclude()
