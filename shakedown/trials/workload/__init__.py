"""Trials: short measurements of one part each, in torch. The folder travels to nodes as it is.

`run.py` starts them. It needs torch and the standard library (3.9 and newer), and no other module of this package. On
GPUs it runs with NCCL (RCCL), without GPUs with gloo on the CPU. Apart from sizes and data types the code is the same.
A trial is a module of `measures` with one function under `@trial`.
"""
