"""The node's side of a smoke run: starts one node's part of the job, watches it, ends it and keeps its log.

It travels with every run (`shakedown/jobs/remote.py`) and needs Linux and python 3.8. `prepare` makes the run folder
and leaves a watchdog behind (`watchdog.py`), which holds the node's lock and runs setup, leader and cleanup. All other
commands are short visits that talk to the watchdog over its socket and print one JSON document.
"""
