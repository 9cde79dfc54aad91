"""Restore what stood on the nodes before Shakedown's first change to each setting, and remove what it wrote.

pyinfra INVENTORY deploy/rollback.py            as root, or with --sudo
"""

from shakedown.guard import invocation
from shakedown.operations import rollback

invocation.examined = True  # this deploy needs no findings: the records on the node say what there is to do

rollback.rollback(name="Restore what stood there before")
