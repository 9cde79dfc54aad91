"""A small Megatron-Core GPT that trains for real: the workload of the embedded default.

`torchrun ... train.py --help` is its front. The folder travels to nodes as it is: it needs torch, numpy, megatron-core
and the standard library, and nothing of the rest of this package. On GPUs it runs with NCCL (RCCL) in bf16, without
one with gloo in fp32, on both in fp16 if asked for; apart from `cpu.py` the code is the same.
"""
