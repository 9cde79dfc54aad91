"""The agent's program as it is on a node, for tests: its files unpacked, and a process that compares by them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from shakedown.agent import program
from shakedown.agent.compile import compiled
from shakedown.desired.models import DesiredState
from shakedown.node import safe_files
from shakedown.operations.agent import start
from shakedown.state.findings import Finding
from shakedown.state.node import NodeState

PYTHON = "/usr/bin/python3"
# Gives what was compiled, and compares states with it, one line for another.
_LOOP = """
import json, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
from shakedown.node.agent import models
models.stand_in()
for line in sys.stdin:
    document, state = json.loads(line)
    models.take(document)
    from shakedown.checks import evaluate
    found = evaluate(models.view(document["desired"]), models.view(state), document["node"])
    from shakedown.checks import checks
    told = [[str(each), str(each.fixed_by), each] for each in found]
    print(models.as_json([list(checks()), *told]), flush=True)
"""


def unpacked(folder: Path) -> Path:
    """The program's files below a folder, with root's places and everybody's home in that folder."""
    for name, data in program.build().files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name == "shakedown/node/safe_files.py":
            for place in (safe_files.ROOTS_STATE, safe_files.ROOTS_LOCKS):
                assert repr(place).replace("'", '"').encode() in data
                data = data.replace(repr(place).replace("'", '"').encode(), repr(str(folder / "var")).encode())
            data = data.replace(b"pwd.getpwuid(os.geteuid()).pw_dir", repr(str(folder)).encode())
        path.write_bytes(data)
    (folder / "run.py").write_text(start(str(folder)))
    subprocess.run([PYTHON, "-I", "-S", "-m", "compileall", "-q", str(folder)], check=True, stdout=subprocess.DEVNULL)
    return folder


class OnTheNode:
    """A node's python without any package that compares states."""

    def __init__(self, folder: Path, python: str = PYTHON) -> None:
        words = [python, "-I", "-S", "-c", _LOOP, str(unpacked(folder))]
        self.names: list[str] = []  # of all checks that there are
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def findings(self, desired: DesiredState, state: NodeState, node: str = "node01") -> list[Any]:
        document = compiled(node, desired, state.account, "0" * 64)
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps([document, state.model_dump(mode="json")]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the program on the node ended"
        self.names, *found = json.loads(line)
        return list(found)

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(timeout=60)


def of_the_controller(findings: list[Finding]) -> list[Any]:
    """The same of findings that the controller has made."""
    dumps = [{**json.loads(each.model_dump_json()), "waiver": each.waiver} for each in findings]
    return [[str(each), str(each.fixed_by), dump] for each, dump in zip(findings, dumps, strict=True)]
