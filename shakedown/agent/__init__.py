"""The agent on the nodes, as the controller has it: its program, what is compiled for a node, and its reports."""
