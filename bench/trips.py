"""python -m bench.trips [--delays 50 300] [--runs 5]: the round trips that a drift check needs beside a bare connect.

One real sshd, and before it a relay on loopback that holds what is sent for so many milliseconds each way. How much
longer the client keeps its connection than without delay, divided by twice the delay, is the number of round trips that
it waits for: starting Python is not in it. The least of several runs counts: a busy machine only ever adds. TCP's own
handshake ends at the relay and is in none.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from bench.cases import DRIFT, FLOOR, cases, prepare
from bench.nodes import BenchError, Nodes, running
from bench.settings import of_this_machine

AIM = 3.0  # round trips more than the bare connect
RELAY = "127.1.1.1"
_CHUNK = 1 << 16


@dataclass
class Relay:
    """What it holds each byte for, in seconds, each way; it counts for what is read from then on."""

    delay_s: float = 0.0
    held_s: float = 0.0  # how long the client has kept its last connection

    async def serve(self, address: tuple[str, int], to: tuple[str, int]) -> asyncio.Server:
        """Listen, and pass on what comes."""

        async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            loop = asyncio.get_running_loop()
            began = loop.time()
            with suppress(OSError):
                there, back = await asyncio.open_connection(*to)
                coming, going = asyncio.create_task(self._way(there, writer)), self._way(reader, back)
                self.held_s = await going - began
                await coming

        return await asyncio.start_server(passed, *address)

    async def _way(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> float:
        """One direction. What is read is due `delay_s` later, whatever is on its way before it. Returns when it ended
        at the side that is read."""
        loop, held = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]]()
        due = loop.time()

        async def read() -> None:
            data = b"-"
            while data:
                try:
                    data = await reader.read(_CHUNK)
                except OSError:
                    data = b""
                held.put_nowait((loop.time() + self.delay_s, data))

        reading = asyncio.create_task(read())
        with suppress(OSError):
            while True:
                due, data = await held.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                if not data:
                    break
                writer.write(data)
                await writer.drain()
        reading.cancel()
        writer.close()
        return due - self.delay_s


@contextmanager
def relayed(nodes: Nodes) -> Iterator[tuple[Nodes, Relay]]:
    """The first node as it is reached through a relay."""
    relay, loop, started = Relay(), asyncio.new_event_loop(), threading.Event()

    def work() -> None:
        asyncio.set_event_loop(loop)
        server = loop.run_until_complete(relay.serve((RELAY, nodes.port), (nodes.addresses[0], nodes.port)))
        started.set()
        loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.01))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    if not started.wait(30):
        raise BenchError(f"the relay on {RELAY}:{nodes.port} did not start")
    known = nodes.known_hosts.read_text()
    nodes.known_hosts.write_text(known + known.splitlines()[0].replace(nodes.addresses[0], RELAY) + "\n")
    try:
        yield replace(nodes, addresses=[RELAY]), relay
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)


def measured(delays: list[int], runs: int) -> dict[int, dict[str, float]]:
    """Delay each way, ms -> case -> the least time that a connection was held, seconds. Raises BenchError."""
    scratch = Path(tempfile.mkdtemp(prefix="sdb", dir="/tmp"))
    least: dict[int, dict[str, float]] = {delay: {} for delay in (0, *delays)}
    try:
        with running(1, scratch) as nodes:
            settings = of_this_machine()
            prepare(nodes, settings)
            with relayed(nodes) as (behind, relay):
                chosen = cases(behind, settings, [FLOOR, DRIFT])
                for turn in range(runs + 1):
                    for delay, held in least.items():
                        relay.delay_s = delay / 1e3
                        for case in chosen:
                            case.cost(behind)
                            if turn:  # the first turn fills caches
                                held[case.name] = min(held.get(case.name, relay.held_s), relay.held_s)
        return least
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def table(least: dict[int, dict[str, float]]) -> str:
    """Times down the delays, and the round trips that they show."""
    lines = ["| delay each way, ms | bare connect, s | drift, s | round trips: connect | drift | more | |"]
    lines.append("|---|---|---|---|---|---|---|")
    for delay, held in least.items():
        floor, drift = held[FLOOR], held[DRIFT]
        if delay:
            trips = [(held[name] - least[0][name]) / (2 * delay / 1e3) for name in (FLOOR, DRIFT)]
            more = trips[1] - trips[0]
            shown = f"{trips[0]:.1f} | {trips[1]:.1f} | {more:.1f} | {'met' if more <= AIM else 'missed'}"
        else:
            shown = "| | |"
        lines.append(f"| {delay} | {floor:.2f} | {drift:.2f} | {shown} |")
    return "\n".join(lines)


def main() -> int:
    """Print the table of docs/speed.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delays", type=int, nargs="+", default=[50, 300], metavar="MS")
    parser.add_argument("--runs", type=int, default=5)
    asked = parser.parse_args()
    try:
        print(table(measured(asked.delays, asked.runs)))
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
