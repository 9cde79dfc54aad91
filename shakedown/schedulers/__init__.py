"""What owns the nodes on a site, and starts jobs there: one folder for each scheduler."""
