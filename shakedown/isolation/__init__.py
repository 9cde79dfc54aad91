"""The search for the node or link that makes a training fail: groups train at the same time, and outcomes narrow it
down. A `Launcher` trains the groups, so a simulation and a real run use the same code."""

NEEDS_NUMPY = "the search for bad nodes needs numpy: pip install 'shakedown[isolation]'"
