"""Many nodes, a batch at a time: whose turn it is, when to stop, and what an earlier run has done already."""
