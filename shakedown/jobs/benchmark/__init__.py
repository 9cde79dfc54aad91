"""What travels with MAD's benchmark: the script in its container, and what the setup of each model has to leave."""
