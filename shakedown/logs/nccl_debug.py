"""The levels of NCCL_DEBUG."""

from collections.abc import Iterable

# The levels of NCCL_DEBUG (in any case) at which warnings are printed; RCCL takes any other word for silence.
# https://github.com/NVIDIA/nccl, src/debug.cc, ncclDebugInit, as read on 2026-11-21
SHOWS_WARNINGS = {"WARN", "INFO", "ABORT", "TRACE"}


def quietest(levels: Iterable[str]) -> str:
    """Of the NCCL_DEBUG of several nodes one that keeps warnings back, where there is one."""
    every = list(levels)
    return next((level for level in every if level.upper() not in SHOWS_WARNINGS), every[0] if every else "")
