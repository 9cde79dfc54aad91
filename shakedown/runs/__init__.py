"""The run directory: records, archive, watch, batches."""

CAPTURE = ".json.gz"
"""How the file of a capture ends."""
