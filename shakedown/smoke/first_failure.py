"""Which of a job's failures was the first: the one that the others follow from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from shakedown.smoke.job import Failure

_WINDOW_S = 20.0  # a failure is an echo only of one that is so close to it

# What ranks say when a rank of another node has gone. It is true, it often comes before the dead rank's own agent says
# anything (a reset connection is seen in milliseconds, a dead child in tenths of a second), and it is never the cause.
_ECHO = re.compile(
    r"closed by peer|reset by peer|Broken pipe|Connection refused|Connection closed|ncclRemoteError|remote process"
    r"|collective operation timeout|NCCL timeout|Socket Timeout|timed out waiting|heartbeat",
    re.IGNORECASE,
)
_ECHO_KINDS = ("rank_failed", "collective_timeout", "nccl_remote_error", "early exit", "stall", "no start", "timeout")
# The node's own part of the run is gone, and with it the ranks there: whatever the others say of it follows from that.
_LOST = ("rebooted", "unreachable", "watchdog")
_NOT_RUNNING = ("(T)", "(t)", "(D)")  # stopped, traced, in uninterruptible sleep


def may_be_echo(failure: Failure) -> bool:
    """Whether the failure may only follow from another one. An exit code other than a signal says no more either."""
    if failure.kind in _LOST:
        return False
    plain_exit = failure.kind == "exit" and "signal" not in failure.text
    return failure.kind in _ECHO_KINDS or plain_exit or _ECHO.search(failure.line or "") is not None


def first(failures: Sequence[Failure]) -> Failure:
    """Of failures in the order of time, the earliest that is no echo and close to the earliest of all."""
    window = failures[0].at.timestamp() + _WINDOW_S
    near = [failure for failure in failures if failure.at.timestamp() <= window]
    return next((failure for failure in near if not may_be_echo(failure)), failures[0])


def with_culprit(failure: Failure, running_at_end: Iterable[tuple[str, Sequence[str]]]) -> Failure:
    """A job that stood still because of somebody: the node with a process that did not run, where there is one.

    `running_at_end` holds (node, processes as the launcher writes them: "123 python3 (T)").
    """
    if failure.kind not in ("stall", "no start"):
        return failure
    for node, processes in running_at_end:
        for process in processes:
            if process.endswith(_NOT_RUNNING):
                text = f"{failure.text}; on {node} this process did not run: {process}"
                return failure.model_copy(update={"node": node, "text": text})
    return failure
