"""Slurm: its commands, its nodes, and jobs within an allocation of it (docs/slurm.md)."""
