"""Reboot the nodes, a few at a time, and see each come back with another boot id before the next one goes.

    pyinfra INVENTORY deploy/reboot.py -y --limit node03

Only where the desired state allows it: service.rungs has "reboot".
"""

from shakedown.runner.repair import requested

requested.reboot()
