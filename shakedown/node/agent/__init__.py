"""The agent runs on a node by a timer, without the controller. It reads with the probe, compares with the checks
of shakedown/checks themselves, and leaves the verdict where others look.

Its program is this folder, the probe's bundle and the checks (`shakedown/agent/program.py` puts them together); what it
compares with is one JSON file that the controller compiles for the node (`shakedown/agent/compile.py`)."""
