"""Benchmarks: programs that measure one node and write their own report, as AMD's "Training a model with PyTorch for
ROCm" documents them.

Not a recipe: each node trains alone, the program chooses its batch sizes, and its report is what is judged.
"""
