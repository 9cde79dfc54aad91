"""Brings to a node what runs there: the probe as an archive that the node keeps (bundle.py), all else as the text of
one program (program.py). All that travels stands in shakedown/node, but for the relay of the Slurm scheduler."""
