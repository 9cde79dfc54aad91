"""Which node, or which link, makes a training fail: groups of nodes train at the same time, and what they come to
narrows it down.

The strategy knows nothing of how a training runs: it asks a `Launcher` for groups of nodes and gets outcomes. So the
simulation (`simulate.py`) and a real run play the same code.
"""
