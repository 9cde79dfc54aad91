"""What a node is: the typed node state, and findings."""
