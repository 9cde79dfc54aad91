"""Find the node, or the link between two nodes, that makes a training fail: groups of nodes train at the same time.

    pyinfra inventories/rack.py deploy/isolate.py

Changes nothing on the nodes but what a smoke run does. --dry tells rounds and seconds and trains nothing.
"""

from shakedown.runner import isolation, stages

stages.examine()
isolation.run()
isolation.conclude()
