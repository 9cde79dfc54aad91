"""The probe: reads one node and prints its state as one JSON document. `launcher/` is another program: it runs jobs.

The probe travels to the nodes in a bundle (`shakedown/transport/bundle.py`) and runs under their own Python, 3.8 or
newer, so it imports nothing of the rest of this project. One module per subject; each has pure parsers and a `read`
function that takes a `Tree`. `assets/` has the programs of operations, each sent alone.
The document's shape is the contract of `shakedown/state/node`.
"""
