"""A run in progress, seen from another terminal: notes.py reads and writes, picture.py adds up, screen.py shows."""
