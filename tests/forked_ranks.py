"""forked_ranks.py RANKS PORT SCRIPT [ARGUMENT...]: the ranks that torchrun would start on one node, without its agent.

Where one fails the others end, as torchrun ends them.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys


def main() -> int:
    """Fork the ranks and wait for them."""
    count, port, script, *arguments = sys.argv[1:]
    pids = [rank(number, int(count), port, script, arguments) for number in range(int(count))]
    worst = 0
    while pids:
        pid, status = os.wait()
        pids.remove(pid)
        if code := os.waitstatus_to_exitcode(status):
            worst = worst or abs(code)
            for other in pids:
                os.kill(other, signal.SIGKILL)
    return worst


def rank(number: int, count: int, port: str, script: str, arguments: list[str]) -> int:
    """The pid of one that has begun."""
    if pid := os.fork():
        return pid
    os.environ |= {"RANK": f"{number}", "LOCAL_RANK": f"{number}", "WORLD_SIZE": f"{count}"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")
    sys.exit(0)


if __name__ == "__main__":
    sys.exit(main())
