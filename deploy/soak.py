"""Burn nodes in: checks, trials, then load on every part for hours, with error counters watched. Changes no setting.

    pyinfra inventories/rack.py deploy/soak.py -y

The desired state's section `soak` says for how long; without one it is a day. `shakedown soak` takes more options.
"""

from shakedown.runner import soak, trials

if soak.plan():
    trials.measure(always=True)
soak.run()
soak.conclude()
