"""Find the node, or the link between two nodes, that makes a training fail: groups of nodes train at the same time.

    pyinfra inventories/rack.py deploy/isolate.py

Where the desired state has a section `trials`, they are measured before. Changes no setting. --dry tells rounds and
seconds and trains nothing.
"""

from shakedown.runner import isolation, stages, trials

stages.examine()
trials.measure()
isolation.run()
isolation.conclude()
