"""Restore what stood on the nodes before Shakedown's first change to each setting.

pyinfra INVENTORY deploy/rollback.py
"""

from operations import rollback

rollback.rollback(name="Restore what stood there before")
