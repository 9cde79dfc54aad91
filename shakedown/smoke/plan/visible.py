"""The GPUs that the site has chosen for the job, in the variables that its documents use for it."""

from __future__ import annotations

from collections.abc import Mapping

# HIP, CUDA's compatibility layer and PyTorch count what ROCR leaves.
SAME = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "PYTORCH_ROCM_DEVICE")
BELOW = "ROCR_VISIBLE_DEVICES"


def named(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that choose GPUs, of those given."""
    return {name: environment[name] for name in (*SAME, BELOW) if name in environment}


def chosen(environment: Mapping[str, str]) -> tuple[list[int] | None, dict[str, str]]:
    """The indices of the chosen GPUs, None where nobody has chosen, and for a variable that cannot be used what was
    expected of it."""
    given = named(environment)
    problems: dict[str, str] = {}
    lists: dict[str, list[int]] = {}
    for name, value in given.items():
        words = value.split(",")
        if not all(word.isascii() and word.isdigit() for word in words) or len(set(map(int, words))) < len(words):
            problems[name] = "the numbers of GPUs, each once, with commas between them, such as 0,1"
        else:
            lists[name] = [int(word) for word in words]
    if BELOW in given and len(given) > 1:
        problems[BELOW] = f"{BELOW} or the others: {', '.join(SAME)} count among the GPUs that it leaves"
    first = next(iter(lists), None)
    for name, indices in lists.items():
        if first is not None and name not in problems and BELOW not in given and indices != lists[first]:
            problems[name] = f"{given[first]} as {first} says"
    return (lists[first] if first is not None else None), problems
