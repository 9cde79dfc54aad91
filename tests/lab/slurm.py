"""A Slurm cluster over namespace nodes: slurmctld and munged on this machine, slurmd and munged in each node.

    with cluster(lab) as slurm:
        slurm.command("sinfo")

Nothing of the machine's own Slurm is used or started: configuration, key, sockets, state and ports are the cluster's.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.lab.machine import DIES_WITH_US, SBIN_PATH, LabError, require, run
from tests.lab.namespaces import Node, Rack

COMMANDS = ("slurmctld", "slurmd", "srun", "munged")
READY_S = 120.0
_CONF = """\
ClusterName=sdlab
SlurmctldHost={host}({address})
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
KillWait=10
{nodes}
PartitionName=main Nodes={names} Default=YES MaxTime=1:00:00 State=UP
"""


class Cluster:
    """A cluster that is up: `conf` is its slurm.conf, for SLURM_CONF."""

    def __init__(self, lab: Rack, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.conf = folder / "slurm.conf"

    def command(self, *argv: str, check: bool = True) -> str:
        """What a command of Slurm says, from this machine."""
        done = run(["env", f"SLURM_CONF={self.conf}", *argv], check=check, timeout=60)
        return done.stdout

    def jobs(self) -> list[str]:
        """Ids of the jobs that are queued or running."""
        return self.command("squeue", "--noheader", "--format=%A").split()

    def wait_until_idle(self, names: Sequence[str] = ()) -> None:
        """Until every node has registered and is free. Raises LabError with what is said of them."""
        deadline = time.monotonic() + READY_S
        wanted = set(names or (node.name for node in self.lab.nodes))
        said = ""
        while time.monotonic() < deadline:
            said = self.command("sinfo", "--noheader", "--Node", "--format=%N %T", check=False)
            states = dict(line.split() for line in said.splitlines() if len(line.split()) == 2)
            if all(states.get(name) == "idle" for name in wanted):
                return
            time.sleep(0.1)
        raise LabError(f"Slurm's nodes are not idle: {said}; {self._log()}")

    def _log(self) -> str:
        log = self.folder / "slurmctld.log"
        return log.read_text(errors="replace")[-1500:] if log.exists() else "slurmctld has no log"

    def start_node(self, node: Node) -> None:
        """munged and slurmd in a node, as its boot would; they end with it."""
        place = node.root / str(self.folder).lstrip("/")
        _fill(place, self.conf.read_text(), (self.folder / "munge.key").read_bytes())
        node.exec(f"{_munged(self.folder)} && mkdir -p {self.folder}/spool && slurmd -f {self.conf}")


@contextmanager
def cluster(lab: Rack, *settings: str) -> Iterator[Cluster]:
    """Slurm over all nodes of a rack, idle; the partition `main` has them all. `settings`: more lines of slurm.conf.
    Raises LabError."""
    require(*COMMANDS)
    folder = Path(lab.slot.folder, "slurm")
    address = str(lab.slot.gateway)
    names = ",".join(node.name for node in lab.nodes)
    lines = [f"NodeName={node.name} NodeAddr={node.address} CPUs=1 RealMemory=100 State=UNKNOWN" for node in lab.nodes]
    conf = _CONF.format(
        host=socket.gethostname().split(".")[0],
        address=address,
        port=_free_port(address),
        folder=folder,
        nodes="\n".join([*settings, *lines]),
        names=names,
    )
    _fill(folder, conf, secrets.token_bytes(128))
    made = Cluster(lab, folder)
    with ExitStack() as stack:
        stack.enter_context(_daemon(folder, *_munged(folder).split(), "--foreground"))
        _until((folder / "munge.socket").exists, "munged made no socket")
        (folder / "state").mkdir(exist_ok=True)
        stack.enter_context(_daemon(folder, "slurmctld", "-D", "-c", "-f", str(made.conf)))
        for node in lab.nodes:
            made.start_node(node)
        made.wait_until_idle()
        yield made


def _fill(folder: Path, conf: str, key: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    (folder / "slurm.conf").write_text(conf)
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # never touched with proctrack/linuxproc
    descriptor = os.open(folder / "munge.key", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o400)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key)


def _munged(folder: Path) -> str:
    files = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munged.pid", "seed-file": "munged.seed"}
    files["log-file"] = "munged.log"
    return " ".join(["munged", "--force", *(f"--{name}={folder}/{file}" for name, file in files.items())])


@contextmanager
def _daemon(folder: Path, *argv: str) -> Iterator[None]:
    """A daemon on this machine, which ends with the context, or with the tests."""
    env = {"PATH": SBIN_PATH, "LC_ALL": "C.UTF-8", "HOME": "/root"}
    with (folder / f"{argv[0]}.out").open("ab") as out:
        process = subprocess.Popen(
            [*DIES_WITH_US, *argv],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=env,
            cwd=folder,
            start_new_session=True,
        )
    try:
        yield
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


def _until(condition: object, what: str) -> None:
    assert callable(condition)
    deadline = time.monotonic() + READY_S
    while not condition():
        if time.monotonic() > deadline:
            raise LabError(what)
        time.sleep(0.02)
