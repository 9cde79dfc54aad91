"""Repair: which nodes are suspect, which repairs are tried in which order, and when a node is back in service."""
