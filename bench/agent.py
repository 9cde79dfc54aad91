"""python -m bench.agent --nhc FOLDER [--runs 20]: what one check of the agent costs, beside LBNL NHC on this machine.

FOLDER is a checkout of https://github.com/mej/nhc (its `nhc` and `scripts/`). Both check comparable things of this very
machine and take turns; each ratio is of one turn, and the figures are medians. NHC asks for a dozen things that it has
checks for: memory, swap, CPUs, file systems, interfaces, device files, processes, kernel settings. The agent reads the
whole node state and compares all that its desired state asks for. `--write` puts the table into
docs/developers/accuracy.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.measure import Cost, run
from shakedown.agent import program
from shakedown.agent.compile import compiled, text
from shakedown.desired.layers import HostLayers, Layer
from shakedown.node import account
from shakedown.node.tree import Tree
from shakedown.operations.agent import installation
from shakedown.operations.scripts import ASSETS
from shakedown.runner.features import resolve
from shakedown.state.node import Account
from shakedown.transport.program import program as assets
from tests.node_trees import make_tree

PROJECT = Path(__file__).resolve().parents[1]
PAGE = PROJECT / "docs" / "developers" / "accuracy.md"
MARKS = "<!-- cost: begin -->", "<!-- cost: end -->"
PYTHON = "/usr/bin/python3"
HEALTH = PROJECT / "shakedown/node/assets/shakedown-health"
SYSCTLS = {"net.core.somaxconn": 128, "vm.overcommit_memory": 0, "vm.swappiness": 60}
# What NHC is asked for: one line of nhc.conf each, with this machine's own values filled in.
CHECKS = (
    "check_hw_cpuinfo {sockets} {cores} {threads}",
    "check_hw_physmem {mem_kb} {mem_kb} 10%",
    "check_hw_mem_free 1mb",
    "check_hw_swap 0 10TB",
    "check_hw_eth {interface}",
    "check_fs_mount_rw -f /",
    "check_fs_free / 1MB",
    "check_fs_inodes / 1k",
    "check_file_test -r -w -c /dev/null /dev/zero",
    "check_file_test -r -s /etc/passwd /etc/group",
    "check_file_contents /proc/sys/vm/overcommit_memory '/^[0-9]/'",
    "check_file_contents /proc/sys/vm/swappiness '/^[0-9]/'",
    "check_file_contents /proc/sys/net/core/somaxconn '/^[0-9]/'",
    "check_ps_loadavg 1000",
    "check_cmd_output -t 5 -m '/Linux/' uname -s",
)


def machine() -> dict[str, Any]:
    """This machine's own values, so that each check of NHC has something to find right."""
    rows = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    cpuinfo = Path("/proc/cpuinfo").read_text()
    cores = [line.split(":")[1] for line in cpuinfo.splitlines() if line.startswith("cpu cores")]
    threads = cpuinfo.count("processor\t:")
    sockets = max(len({line for line in cpuinfo.splitlines() if line.startswith("physical id")}), 1)
    names = sorted(path.name for path in Path("/sys/class/net").iterdir())
    return {
        "sockets": sockets,
        "cores": sockets * int(cores[0]) if cores else threads,
        "threads": threads,
        "mem_kb": f"{int(rows['MemTotal'].split()[0])}k",
        "interface": next((name for name in names if name != "lo"), "lo"),
    }


def agent(folder: Path) -> list[str]:
    """The agent's program and what is compiled for this machine, below a folder; the command of one check."""
    (folder / "program").mkdir()
    job = installation(str(folder / "program"), {})
    words = [PYTHON, "-I", "-S", "-c", assets(ASSETS / "agent.py")]
    subprocess.run(words, input=json.dumps(job), text=True, check=True)
    site = {
        "gpu": "cpu",
        "tuning": {"sysctl": SYSCTLS, "memlock": "unlimited", "nofile": 1024, "modules": []},
        "system": {"memory": "1M", "disk_free": {"/": "1M"}, "kernel_log_clean": True, "mpi": "installed"},
        "agent": {"textfile": str(folder / "textfile")},
    }
    desired = resolve([HostLayers("node", [Layer("bench", site)], user="root")]).states["node"]
    who = Account.model_validate(account.read(Tree()))
    (folder / "textfile").mkdir()
    (folder / "agent.json").write_text(text(compiled("node", desired, who, program.build().digest)))
    run = str(folder / "program" / program.build().digest / "run")
    return [run, "--config", str(folder / "agent.json"), "--state", str(folder / "state")]


def nhc(folder: Path, checkout: Path) -> list[str]:
    """NHC's own driver with its scripts, a configuration of CHECKS, and no resource manager to report to."""
    shutil.copytree(checkout / "scripts", folder / "nhc/scripts")
    (folder / "nhc/nhc.conf").write_text("".join(f"* || {check.format(**machine())}\n" for check in CHECKS))
    place = folder / "nhc"
    options = ["-D", str(place), "-c", str(place / "nhc.conf"), "-l", str(place / "nhc.log")]
    variables = [f"INCDIR={place / 'scripts'}", f"CONFDIR={place}", "NHC_RM=", "MARK_OFFLINE=0"]
    return ["bash", str(checkout / "nhc"), *options, *variables]


def measured(argv: list[str], folder: Path) -> Cost:
    """One run, which has to do its work."""
    done = run(argv, folder)
    if done.code:
        raise SystemExit(f"{argv[0]}: exit code {done.code}: {done.output[-2000:]}")
    return done.cost


def health(folder: Path) -> list[str]:
    """The command that answers from the verdict's file, about the folder that the agent has written to."""
    script = folder / "health"
    script.write_text(HEALTH.read_text().replace("folder=/var/lib/shakedown", f"folder={folder / 'state'}"))
    return ["sh", "-c", f"sh {script}; exit 0"]


def table(costs: dict[str, list[Cost]], findings: int) -> str:
    """The medians, and the ratios of the same turn."""
    rows = ["| | CPU, ms | wall, ms | largest process, MB | CPU beside NHC |", "|---|---|---|---|---|"]
    names = {
        "agent": f"one check of the agent ({findings} findings)",
        "rack": "the same of a node of eight GPUs and eight NICs, in files of a test",
        "python": f"of it `{Path(PYTHON).name} -I -S -c pass`",
        "nhc": f"LBNL NHC ({len(CHECKS)} checks)",
        "health": "`shakedown-health`",
    }
    for name, words in names.items():
        if name not in costs:
            continue
        its = costs[name]
        cpu, wall, peak = (
            statistics.median(getattr(entry, figure) for entry in its) for figure in ("cpu_s", "wall_s", "peak_mb")
        )
        beside = ""
        if "nhc" in costs:
            pairs = zip(its, costs["nhc"], strict=True)
            beside = f"{statistics.median(own.cpu_s / other.cpu_s for own, other in pairs):.2f}"
        rows.append(f"| {words} | {1000 * cpu:.0f} | {1000 * wall:.0f} | {peak:.0f} | {beside} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nhc", type=Path, help="a checkout of LBNL NHC; without it the agent is measured alone")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--write", action="store_true", help="put the table into docs/developers/accuracy.md")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("the agent is root's: run as root")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        commands = {"agent": agent(folder), "python": [PYTHON, "-I", "-S", "-c", "pass"]}
        make_tree(folder / "tree", gpu="mi300x", nic="thor2")
        commands["rack"] = [*commands["agent"][:-1], str(folder / "state2"), "--root", str(folder / "tree")]
        if arguments.nhc:
            commands["nhc"] = nhc(folder, arguments.nhc)
        measured(commands["agent"], folder)  # which makes the verdict that the last one answers from
        commands["health"] = health(folder)
        for argv in commands.values():
            measured(argv, folder)
        costs: dict[str, list[Cost]] = {name: [] for name in commands}
        for _ in range(arguments.runs):
            for name, argv in commands.items():
                costs[name].append(measured(argv, folder))
        reported = json.loads((folder / "state/verdict.json").read_text())
    shown = table(costs, len(reported["findings"]))
    sys.stdout.write(f"{shown}\n")
    if arguments.write:
        before, _, rest = PAGE.read_text("utf-8").partition(MARKS[0])
        PAGE.write_text(f"{before}{MARKS[0]}\n{shown}\n{MARKS[1]}{rest.partition(MARKS[1])[2]}", "utf-8")


if __name__ == "__main__":
    main()
