"""Have the nodes train together, as they are, and judge it: what a node has to pass before it is back in service.

    pyinfra INVENTORY deploy/load.py -y --limit node03,node04

It changes no setting.
"""

from shakedown.runner import stages

stages.examine()
stages.smoke()
stages.conclude()
