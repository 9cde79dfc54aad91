"""Unload the GPUs' kernel modules and load them again, on nodes where nothing uses them.

    pyinfra INVENTORY deploy/reload_driver.py -y --limit node03

Only where the desired state allows it: service.rungs has "reload driver".
"""

from shakedown.runner.repair import requested

requested.reload_driver()
