"""One module for each trial: what is measured, in which unit, on what."""
