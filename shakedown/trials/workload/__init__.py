"""Trials in torch and the standard library (3.9 and newer), a folder that travels as it is; `run.py` starts them. GPUs
use NCCL (RCCL), CPUs gloo, with the same code but for sizes and types. A trial is a function of `measures` under
`@trial`."""
