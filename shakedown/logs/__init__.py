"""Reading a training log."""
