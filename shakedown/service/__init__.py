"""The way back into service: who is suspect, what is tried on a node and in which order, and when it is well again."""
