"""Compare every node with its desired state, and change nothing.

    pyinfra inventories/rack.py deploy/drift.py

A host that drifted fails, so pyinfra exits with 1.
"""

from shakedown.runner import stages

stages.drifted()
