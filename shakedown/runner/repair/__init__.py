"""The way of a node back into service."""
