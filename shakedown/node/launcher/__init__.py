"""The node's side of a smoke run: starts one node's part of the job, watches it, ends it and keeps its log.

The package travels to the node with every run (`shakedown/jobs/remote.py` sends its sources on standard input) and
needs nothing there but Linux and python 3.8. `prepare` makes the run folder and leaves a watchdog behind
(`watchdog.py`), which holds the node's lock, runs the setup, starts the job's leader on command and ends it on command
to, or when the controller has not been heard of for the length of the lease. All other commands are short visits that
talk to the watchdog over its socket and print one JSON document.
"""
