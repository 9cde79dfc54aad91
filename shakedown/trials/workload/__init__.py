"""Trials: short measurements of one part each, in torch. The folder travels to nodes as it is.

`run.py --help` is its front. It needs torch and the standard library (3.9 and newer), and nothing of the rest of this
package. On GPUs it runs with NCCL (RCCL), without one with gloo on the CPU; apart from sizes and data types the code is
the same. A trial is a module of `measures` with one function under `@trial`.
"""
