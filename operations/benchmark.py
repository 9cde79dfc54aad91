"""
Benchmarks: one job on each node, all at the same time and none waiting for another.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Mapping

import gevent
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State

from operations.smoke import Remote, carry_out, interrupts
from shakedown.smoke.supervise import Job


@operation(is_idempotent=False)
def run(jobs: Mapping[str, Job]) -> Generator[FunctionCommand, None, None]:
    """
    Run each host's own job, and keep what became of it.

    + jobs: by the host's name; each takes its result, or its error

    Declare it on all hosts on one line of the deploy. The first that is still active starts all of them, so that one
    Ctrl-C ends all; a job that fails leaves the others alone. The operation succeeds whatever the jobs came to: that
    is judged from their records.

    **Example:**

    .. code:: python

        benchmark.run(name="PyTorch training", jobs=jobs)
    """
    if sys.stderr.isatty():
        os.environ["PYINFRA_PROGRESS"] = "off"  # its spinner and the jobs' lines would overwrite each other
    yield FunctionCommand(_drive, [jobs], {})


def _drive(state: State, host: Host, jobs: Mapping[str, Job]) -> bool:
    operation_hash = host.executing_op_hash or ""
    active = set(state.inventory.get_active_hosts())
    hosts = [each for each in state.inventory if each in active and operation_hash in state.ops[each]]
    if host is not hosts[0]:
        return True
    with interrupts() as interrupted:
        running = [
            gevent.spawn(carry_out, jobs[each.name], Remote(state, {each.name: each}, operation_hash), interrupted)
            for each in hosts
            if each.name in jobs
        ]
        gevent.joinall(running)
    return True
