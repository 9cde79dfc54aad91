"""What runs madengine on a node: a script, and its way to remove the containers of the run."""
