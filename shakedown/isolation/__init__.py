"""The search for the node, or the link, that makes a training fail. Groups of nodes train at the same time, and their
outcomes narrow the cause down.

The strategy does not know how a training runs: it hands groups of nodes to a `Launcher` and gets outcomes. So a
simulation and a real run use the same code.
"""

NEEDS_NUMPY = "the search for bad nodes needs numpy: pip install 'shakedown[isolation]'"
