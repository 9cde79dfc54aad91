"""One fault of the table, from a fresh rack to what was said and what was left behind."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.lab import trees
from tests.lab.faults import scenes
from tests.lab.faults.scenes import Stage
from tests.lab.namespaces import Node, Rack, rack
from tests.lab.node_spec import NodeSpec
from tests.lab.product import LONG, PROJECT, Product, smoke, until

TABLE = Path(__file__).with_name("table.toml")
TUNED = NodeSpec(
    proc={"sys/kernel/numa_balancing": "0\n"}, files={"etc/sysctl.d/10-numa.conf": "kernel.numa_balancing=0\n"}
)
"""A node in the desired state of the CPU profile: nothing of what is found afterwards is a setting."""
LEASE_S = 60
"""Within this a node ends its own part of a job whose controller is gone."""
OWN = re.compile(
    r"root/\.cache/shakedown/[0-9a-f]{64}-|var/log/|\.pyc$"
    r"|^run/(sshd\.pid|docker|containerd|shakedown/node\.(lock|json)$)|^run/sdlab"
)
"""The probe's bundle and the launcher's lock, which are kept by design, and the lab's own files."""
RUN_FOLDER = re.compile(r"^(root/\.cache/shakedown/runs/).*")
"""Named once, whatever is in it."""


@dataclass(frozen=True)
class Fault:
    """An entry of table.toml."""

    name: str
    how: str
    command: str
    says: list[str]
    code: int | list[int]
    scene: str = "nothing"
    rack: str = "cpu"
    during: str = "before"
    options: tuple[str, ...] = ()
    tree: tuple[str, ...] = ()
    library: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def codes(self) -> list[int]:
        return self.code if isinstance(self.code, list) else [self.code]


@dataclass(frozen=True)
class Outcome:
    """What the tool said, its exit code, and what was left on the nodes: `node: thing` each."""

    said: str
    code: int
    left: tuple[str, ...]

    def line(self, fault: Fault) -> str:
        """The line that says it: the first with the most of the expected words."""
        return max(self.said.splitlines(), key=lambda line: sum(words in line for words in fault.says), default="")


def faults() -> list[Fault]:
    """The table, in its order."""
    return [Fault(**entry) for entry in tomllib.loads(TABLE.read_text())["fault"]]


def play(fault: Fault, folder: Path) -> Outcome:
    """Start a rack, make the fault, run the command, look at every node that is up."""
    with ExitStack() as things:
        lab, data = RACKS[fault.rack](fault, folder, things)
        stage = Stage(lab, Product(folder), data, things)
        scene = getattr(scenes, fault.scene)(stage)
        if fault.during == "training":
            before = _pictures(lab)
            stage.process = _start(fault, stage)
            scenes.in_the_middle(stage)
            next(scene)
        else:
            next(scene)
            before = _pictures(lab)
            stage.process = _start(fault, stage)
        code, said = scenes.end_of(stage)
        next(scene, None)
        return Outcome(_plain(said + stage.added, folder), code, tuple(_left(lab, before)))


def _plain(said: str, folder: Path) -> str:
    """Without paths of this machine, each sentence on one line, and two blanks between columns, whose width is that of
    what stands in them."""
    said = re.sub(r"\n {8}(?! )", " ", said.replace(f"{folder}/", "").replace(f"{PROJECT}/", ""))
    return "\n".join(re.sub(r" {2,}", "  ", line.strip()) for line in said.splitlines())


def _cpu(fault: Fault, folder: Path, things: ExitStack) -> tuple[Rack, dict[str, Any]]:
    """Nodes that train the small GPT, for as long as it takes to disturb them."""
    return things.enter_context(rack(2, TUNED)), smoke(**LONG if fault.during == "training" else {})


def _docker(fault: Fault, folder: Path, things: ExitStack) -> tuple[Rack, dict[str, Any]]:
    """Nodes with a container engine, and nothing to train."""
    return things.enter_context(rack(2, replace(TUNED, docker=True))), {"gpu": "cpu"}


def _gpu(fault: Fault, folder: Path, things: ExitStack) -> tuple[Rack, dict[str, Any]]:
    """MI300X nodes with Thor2; what is the machine's and not theirs is not asked for."""
    specs = [trees.spec(folder, 1), trees.spec(folder, 2, faults=fault.tree, library=fault.library)]
    lab = things.enter_context(rack(specs))
    trees.wait_until_settled(lab)
    system = {"disk_free": {"/": "1M"}, "container_engine": None, "clock_synchronised": None}
    return lab, {"gpu": "mi300x", "nic": "thor2", "system": system, "tuning": {"memlock": None, "nofile": None}}


RACKS = {"cpu": _cpu, "docker": _docker, "gpu": _gpu}


def _start(fault: Fault, stage: Stage) -> subprocess.Popen[str]:
    stage.write_inventory()
    if fault.command == "drift":
        return stage.product.start("shakedown", "drift", stage.path, *fault.options)
    return stage.product.start("pyinfra", stage.path, PROJECT / "deploy/megatron.py", "-y", *fault.options)


Picture = dict[str, tuple[int, int]]


def _pictures(lab: Rack) -> dict[str, Picture]:
    return {node.name: _picture(node) for node in lab}


def _picture(node: Node) -> Picture:
    """Size and time of every file on the node's disk, in its /run and its /tmp."""
    folders = {"": node.upper, "run/": node.folder / "run", "tmp/": node.folder / "tmp"}
    found = {
        f"{prefix}{path.relative_to(folder)}": path.lstat()
        for prefix, folder in folders.items()
        for path in folder.rglob("*")
        if path.is_file()
    }
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in found.items() if not OWN.search(name)}


def _left(lab: Rack, before: dict[str, Picture]) -> Iterator[str]:
    """Processes that do not end, and files that are new or were changed."""
    for node in lab:
        if node.init_pid:
            try:
                until(lambda node=node: not node.processes(), LEASE_S)  # type: ignore[misc]
            except AssertionError:
                yield from (f"{node.name}: process {' '.join(process.args)[:80]}" for process in node.processes())
        after = _picture(node)
        new = [name for name in after if after[name] != before[node.name].get(name)]
        for name in sorted({RUN_FOLDER.sub(r"\1", name) for name in new}):
            yield f"{node.name}: {name}"
