"""How what runs on a node gets there: the probe as an archive that the node keeps (bundle.py), all else as the text of
one program (program.py), and one search for an interpreter that is new enough. What travels stands in
shakedown/node."""
