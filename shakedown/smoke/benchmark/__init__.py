"""Benchmarks: programs that measure one node and write their own report, as 002_9ba63871c73d39f8.txt documents them.

Not a recipe: each node trains by itself, the program chooses its batch sizes, and its report is what is judged.
"""
