"""Restore what stood on the nodes before Shakedown's first change to each setting, and remove what it wrote.

pyinfra INVENTORY deploy/rollback.py            as root, or with --sudo
"""

from shakedown.runner import rollback

rollback.restore()
