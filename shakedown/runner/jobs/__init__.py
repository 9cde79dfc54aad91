"""Jobs in a scheduler's allocation."""
