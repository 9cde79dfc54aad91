"""Stand-ins for Slurm's commands, first in PATH: where no cluster is needed to see what is asked of it."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

SRUN = f"""#!{sys.executable}
import os, shlex, subprocess, sys, threading
from ClusterShell.NodeSet import NodeSet
options = dict(word[2:].partition("=")[::2] for word in sys.argv[1:] if word.startswith("--"))
argv = sys.argv[next(i for i, word in enumerate(sys.argv[1:], 1) if not word.startswith("--")):]
lost = os.environ.get("HOME") + "/lost"
turn = threading.Lock()
def label(rank, name, child):
    for line in child.stdout:
        if not (os.path.exists(lost) and name in open(lost).read()):
            with turn:
                sys.stdout.write("%d: %s" % (rank, line.decode())), sys.stdout.flush()
children = []
for rank, name in enumerate(NodeSet(options["nodelist"])):
    env = dict(os.environ, SLURM_JOB_ID=options["jobid"], SLURM_STEP_ID=str(os.getpid()), SLURMD_NODENAME=str(name))
    children.append(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env))
    threading.Thread(target=label, args=(rank, str(name), children[-1])).start()
for line in sys.stdin.buffer:
    for child in children:
        child.stdin.write(line), child.stdin.flush()
for child in children:
    child.stdin.close()
for child in children:
    child.wait()
"""
"""srun of a step whose nodes are all this machine: input goes to each, output comes with the rank's label."""

SCONTROL = f"""#!{sys.executable}
import os, sys
from ClusterShell.NodeSet import NodeSet
for row in open(os.environ["HOME"] + "/rows"):
    if len(sys.argv) == 4 or row.partition(" ")[0][len("NodeName="):] in NodeSet(sys.argv[4]):
        print(row, end="")
"""
"""scontrol that shows nodes."""


class Programs:
    """Puts programs of Slurm's names first in PATH."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "home").mkdir()
        monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.defpath}")
        monkeypatch.setenv("HOME", str(folder / "home"))

    def put(self, name: str, script: str) -> None:
        """A program: a shell script, or a whole one with its own first line."""
        path = self.folder / "bin" / name
        path.write_text(script if script.startswith("#!") else f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def nodes(self, rows: str) -> None:
        """scontrol, as it shows these nodes."""
        (self.folder / "home/rows").write_text(rows)
        self.put("scontrol", SCONTROL)

    def asked(self) -> list[str]:
        """What the programs have noted, one line each: `echo ... >> $HOME/asked`."""
        file = self.folder / "home/asked"
        return file.read_text().splitlines() if file.exists() else []
