"""Have every node check itself by a timer, or take that away again.

    pyinfra inventories/rack.py deploy/agent.py -y            as root, or with --sudo

The desired state's section `agent` says how often, what is written where, and whether the agent may put back what is
safe; `"agent": {"state": "absent"}` removes it, as deploy/rollback.py does.
"""

from shakedown.runner import agents

agents.install()
