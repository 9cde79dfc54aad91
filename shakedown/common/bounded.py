"""How long a word is that a table or a record keeps, in characters."""

VERDICT = 10
NAME = 255  # of a node, a job, a serial number
TEXT = 500  # of what a person reads
DIGEST = 64
