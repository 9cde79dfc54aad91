"""A run in progress, seen from another terminal: what the run notes down, and what is made of it.

`notes.py` is one note, how it is written and how it is read as it comes, `picture.py` adds them up, and `screen.py`
shows that until the run is over.
"""
