"""Many nodes, a batch at a time: the next batch, when to stop, and what an earlier run has done already."""
