"""The sampler: what a node's GPUs, NICs, CPUs and kernel do while a job runs on it.

The package travels to the node with every run, beside the launcher (`shakedown/jobs/remote.py`), and needs nothing
there but Linux and python 3.8. The watchdog starts it right before the job's leader and ends it after the last process
of the job. It runs at the node's idle priority and writes two files into the launcher's part of the run folder:
`telemetry.jsonl` and `kernel.log`, whose forms `shakedown/evidence/telemetry` reads.
"""
