"""A run in progress, seen from another terminal: what the run notes down, and what is made of it.

`notes.py` is one note and how it is written, `reading.py` reads them as they come, `picture.py` adds them up, and
`screen.py` shows that.
"""
