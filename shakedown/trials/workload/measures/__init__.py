"""One module for each trial: its measurement, unit and part."""
