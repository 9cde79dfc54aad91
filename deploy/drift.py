"""Compare every node with its desired state and change nothing; a host that drifted fails, so pyinfra exits with 1.

    pyinfra inventories/rack.py deploy/drift.py
"""

from deploy import stages

stages.drifted()
