"""The desired state: what a node should be, typed, in layers, and checked before the first connection."""
