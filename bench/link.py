"""python -m bench.link [--hosts 20 100] [--delays 50 200] [--runs 5]: what a drift check waits for, beside pyinfra's
bare connect. Needs root and an sshd.

A relay before each node, on loopback, holds what is sent for so many milliseconds each way. The two cases take turns;
the least of several runs counts: a busy machine only ever adds.

Round trips, over one real node: how much longer the client keeps its connection than without delay, divided by twice
the delay. Starting Python is not in it, nor TCP's own handshake, which ends at the relay.

Wall time where the nodes' CPU is out of it: the nodes of the other measurements share this machine's cores with the
controller, and a rack's cores are its own. Here each node has a real sshd, and says to every command what the probe has
said before, from a file.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from bench.cases import DRIFT, FLOOR, PROBE, cases, prepare
from bench.measure import run
from bench.nodes import BenchError, Nodes, running
from bench.settings import Settings, of_this_machine

TRIPS = 3.0  # aim: round trips more than the bare connect
TIMES = 1.3  # aim: times the bare connect's wall time
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
            with suppress(OSError, asyncio.CancelledError):  # that is how the relays end
                there, back = await asyncio.open_connection(*to)
                coming, going = asyncio.create_task(self._way(there, writer)), self._way(reader, back)
                self.held_s = await going - began
                await coming

        return await asyncio.start_server(passed, *address, backlog=512)

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
    """The nodes as each is reached through a relay of its own; all of them hold for the same time."""
    relay, loop, started = Relay(), asyncio.new_event_loop(), threading.Event()
    behind = [f"127.1.1.{number}" for number in range(1, len(nodes.addresses) + 1)]

    def work() -> None:
        asyncio.set_event_loop(loop)
        ways = zip(behind, nodes.addresses, strict=True)
        serving = [relay.serve((here, nodes.port), (there, nodes.port)) for here, there in ways]
        servers = loop.run_until_complete(asyncio.gather(*serving))
        started.set()
        loop.run_forever()
        for server in servers:
            server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.01))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    if not started.wait(30):
        raise BenchError(f"the relays on {behind[0]}:{nodes.port} and further did not start")
    known = nodes.known_hosts.read_text()
    _, _, key = known.splitlines()[0].partition(" ")
    nodes.known_hosts.write_text(known + "".join(f"[{address}]:{nodes.port} {key}\n" for address in behind))
    try:
        yield replace(nodes, addresses=behind), relay
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)


def answer(settings: Settings) -> str:
    """What the probe says of a node that is as it should be."""
    with running(1) as nodes:
        prepare(nodes, settings)
        (probe,) = cases(nodes, settings, [PROBE])
        outcome = run(["env", *(f"{key}={value}" for key, value in probe.env.items()), *probe.argv], nodes.scratch)
        if why := probe.wrong(outcome):
            raise BenchError(f"the probe: {why}")
        return outcome.output


def least(
    nodes: Nodes, settings: Settings, delays: list[int], runs: int, seconds: Callable[[Relay, float], float]
) -> dict[int, tuple[float, float]]:
    """Delay each way, ms -> the least that a bare connect and a drift check took, by what `seconds` makes of the relay
    and of the wall time. Raises BenchError."""
    found: dict[int, dict[str, list[float]]] = {delay: {FLOOR: [], DRIFT: []} for delay in delays}
    with relayed(nodes) as (behind, relay):
        chosen = cases(behind, settings, [FLOOR, DRIFT])
        for turn in range(runs + 1):
            for delay, taken in found.items():
                relay.delay_s = delay / 1e3
                for case in chosen:
                    wall_s = case.cost(behind).wall_s
                    if turn:  # the first turn fills caches
                        taken[case.name].append(seconds(relay, wall_s))
    return {delay: (min(taken[FLOOR]), min(taken[DRIFT])) for delay, taken in found.items()}


def trips(settings: Settings, delays: list[int], runs: int) -> Iterator[str]:
    """The table of round trips."""
    yield "| round trips, one host, delay each way | bare connect | drift | more | aim | |\n|---|---|---|---|---|---|"
    with running(1) as nodes:
        prepare(nodes, settings)
        held = least(nodes, settings, [0, *delays], runs, lambda relay, _wall_s: relay.held_s)
    for delay in delays:
        floor, drift = ((late - soon) / (2 * delay / 1e3) for late, soon in zip(held[delay], held[0], strict=True))
        yield row(f"{delay} ms | {floor:.1f} | {drift:.1f} | {drift - floor:.1f}", drift - floor, TRIPS)


def times(settings: Settings, hosts: list[int], delays: list[int], runs: int) -> Iterator[str]:
    """The table of wall times."""
    yield "| wall time, nodes' CPU out of it | delay each way | bare connect | drift | beside it | aim | |"
    yield "|---|---|---|---|---|---|---|"
    text = answer(settings)
    for count in hosts:
        with running(count, text) as nodes:
            walls = least(nodes, settings, [0, *delays], runs, lambda _relay, wall_s: wall_s)
        for delay, (floor, drift) in walls.items():
            shown = f"{count} hosts | {delay} ms | {floor:.2f} s | {drift:.2f} s | {drift / floor:.2f} x"
            yield row(shown, drift / floor, TIMES)


def row(shown: str, figure: float, aim: float) -> str:
    return f"| {shown} | <= {aim:g} | {'met' if figure <= aim else 'missed'} |"


def main() -> int:
    """Print the tables of docs/developers/speed.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=[20, 100], choices=range(1, 255), metavar="N")
    parser.add_argument("--delays", type=int, nargs="+", default=[50, 200], metavar="MS", help="each way")
    parser.add_argument("--runs", type=int, default=5, help="counted turns, after one that is not")
    wanted = parser.parse_args()
    settings = of_this_machine()
    try:
        for line in trips(settings, wanted.delays, wanted.runs):
            print(line, flush=True)
        for line in times(settings, wanted.hosts, wanted.delays, wanted.runs):
            print(line, flush=True)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
