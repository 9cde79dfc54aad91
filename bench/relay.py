"""A relay before each node, on loopback: what goes through is held for so many milliseconds each way."""

from __future__ import annotations

import argparse
import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from bench.nodes import BenchError, Nodes

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


def options(about: str | None, delays: list[int]) -> argparse.ArgumentParser:
    """The options of a measurement through relays."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delays", type=int, nargs="+", default=delays, metavar="MS", help="each way")
    parser.add_argument("--runs", type=int, default=5, help="counted turns, after one that is not")
    return parser
