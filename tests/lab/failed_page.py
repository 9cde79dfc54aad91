"""The rack of docs/failed.md: four nodes, and something on node2 that kills each of its ranks."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.transcripts import RUN
from tests.lab.namespaces import Node, Rack
from tests.lab.product import LONG, Product, smoke, until_it_trains

BAD = "node2"
NODES = 4


class Reader(Product):
    """A person at a pipe: no width of a terminal, pyinfra as it is."""

    def environment(self) -> dict[str, str]:
        names = ("COLUMNS", "PYINFRA_PROGRESS")
        return {name: value for name, value in super().environment().items() if name not in names}


@contextmanager
def _killing(node: Node) -> Iterator[None]:
    """Kill the node's ranks as they come."""
    over = threading.Event()

    def kill() -> None:
        ranks = "ps -eo pid,args | grep '[t]rain.py' | grep -v -e torchrun -e torch.distributed"
        while not over.wait(0.5):
            node.exec(f"{ranks} | while read pid rest; do kill -9 $pid; done", check=False)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def perform(lab: Rack, folder: Path, commands: list[str]) -> Generator[tuple[str, int, str]]:
    """Perform the commands one after the other; the id of a run in them becomes that of the first one's run. Yield each
    with its exit code and output. The first run has begun to train when the node goes bad."""
    lab.inventory(folder / "rack.py", smoke(**LONG), group="rack")
    reader = Reader(folder)
    process = reader.start("bash", "-c", f"{commands[0]} 2>&1")
    until_it_trains(lab.nodes)
    with _killing(lab[BAD]):
        yield commands[0], *_ended(process)
        run = (folder / "runs/latest").resolve().name
        for command in commands[1:]:
            yield command, *_ended(reader.start("bash", "-c", f"{RUN.sub(run, command)} 2>&1"))


def _ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, _ = process.communicate(timeout=400)
    return process.returncode, out
