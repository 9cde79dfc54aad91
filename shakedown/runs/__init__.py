"""The run directory: records, archive, watch, batches."""
