"""Evidence of a hang: what the processes of a run are doing, written to `hang/` of the run folder before anything is
ended.

Of each process its state, what its threads wait for in the kernel, and connections whose other end does not
acknowledge; of a rank that listens (the workload of this project) its flight record and stacks; the stacks of others
where py-spy is there. Nothing is stopped by it, and no process gets a signal that it does not wait for.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from typing import Any, Dict, List, Optional

from ..owners import own_file
from ..safe_files import FILE, Folder, Unsafe
from . import folder, processes
from .processes import kernel_text

FOLDER = "hang"
SECONDS = 12.0  # for all of it; the controller waits for 20
_PROCESSES = 64  # of a node that are looked at: 16 ranks with a few helpers each
_THREADS = 64
_TEXT = 16 << 10  # characters of one file of /proc, or of one thread's stacks
_STACKS = 256 << 10  # characters of a process's stacks
_FILES = 256  # names in the answer
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")
_TORCHRUN = re.compile(r"\0(RANK|WORLD_SIZE)=([0-9]{1,8})(?![^\0])")  # of an environment
_ESTABLISHED = "01"  # net/tcp_states.h
_RAS = ("127.0.0.1", 28028)  # NCCL_RAS_ADDR's default: each job's RAS threads listen there, on loopback alone
_RAS_S = 3.0  # for its answer: any user of the node may listen there, and say a byte now and then
_ASK, _STACK = signal.SIGUSR2, signal.SIGUSR1  # what a rank that listens has handlers for


def take(path: str, mark: str, watchdog: Optional[int]) -> Dict[str, Any]:
    """Write it all down, within `SECONDS`. Returns the files, below the run folder, and what could not be had."""
    until = time.monotonic() + SECONDS
    hang = folder.below(path, FOLDER)
    _forget(hang)
    every = sorted(processes.members(mark, watchdog), key=lambda process: process.pid)
    found = every[:_PROCESSES]
    names = {process: "%d" % _inner(process.pid) for process in found}
    listening = [process for process in found if _listens(hang, process.pid, names[process])]
    signalled = time.time()
    for process in listening:
        processes.send(process, _ASK)
    _ask_nccl(hang)
    documents = [_about(process) for process in found]
    for process in listening:
        processes.send(process, _STACK)
    ras = _ras()
    program = _py_spy(found)
    for document in documents:
        if program and time.monotonic() < until - 3:
            document["stacks"] = _spied(program, document["pid"])
        _write(hang, "process-%d.json" % document["pid"], document)
    running = [names[process] for process in listening if process.state not in "Tt"]
    wanted = ["flight-%s.json" % name for name in running] + [_stacks_of(hang, name) for name in running]
    while time.monotonic() < until and not all(_has(hang, name) for name in wanted):
        time.sleep(0.1)
    late = [name for name in wanted if not _has(hang, name)]
    seconds = round(time.monotonic() - until + SECONDS, 3)
    _write(hang, "node.json", {"processes": len(every), "ras": ras, "at": signalled, "seconds": seconds, "late": late})
    written = [name for name in sorted(hang.names()) if _NAME.fullmatch(name)]
    files = ["%s/%s" % (FOLDER, name) for name in written if not name.endswith((".pipe", ".partial"))]
    return {"files": files[:_FILES], "late": late, "processes": len(every)}


def _forget(hang: Folder) -> None:
    """Remove what an earlier look has written: a rank that does not answer now must not seem to have answered."""
    for name in hang.names():
        with suppress(OSError, Unsafe):
            if name.startswith("stacks-"):  # the rank keeps it open, and its name says that it listens
                os.close(hang.open(name, os.O_WRONLY | os.O_TRUNC))
            elif name.startswith(("flight-", "process-")):
                hang.remove(name)


def _about(process: processes.Process) -> Dict[str, Any]:
    now = processes.read(process.pid)
    root = "/proc/%d/" % process.pid
    torchrun = dict(_TORCHRUN.findall("\0" + kernel_text(root + "environ", 1 << 20)))
    return {
        "pid": process.pid,
        "inner_pid": _inner(process.pid),
        "command": process.command,
        "state": now.state if now else "gone",
        "rank": int(torchrun["RANK"]) if "RANK" in torchrun else None,
        "world_size": int(torchrun["WORLD_SIZE"]) if "WORLD_SIZE" in torchrun else None,
        "wchan": kernel_text(root + "wchan", _TEXT),
        "kernel_stack": kernel_text(root + "stack", _TEXT),
        "status": kernel_text(root + "status", _TEXT),
        "threads": [_thread(task) for task in sorted(glob.glob(root + "task/*"))[:_THREADS]],
        "unacknowledged": _unacknowledged(process.pid),
    }


def _thread(task: str) -> Dict[str, Any]:
    state = kernel_text(task + "/stat", _TEXT).rpartition(")")[2].split()[:1]
    return {"tid": os.path.basename(task), "state": state, "wchan": kernel_text(task + "/wchan", _TEXT)}


def _status(pid: int) -> Dict[str, str]:
    lines = (line.partition(":") for line in kernel_text("/proc/%d/status" % pid, _TEXT).splitlines())
    return {name: value.strip() for name, _, value in lines}


def _inner(pid: int) -> int:
    """Return the pid as the process itself sees it: in a container the pid is another one."""
    inner = _status(pid).get("NSpid", "").split()
    return int(inner[-1]) if inner else pid


def _listens(hang: Folder, pid: int, name: str) -> bool:
    """Return whether a process waits for both signals, which would end another, and shows that by its file."""
    caught = int(_status(pid).get("SigCgt", "0"), 16)
    both = caught >> (_ASK - 1) & 1 and caught >> (_STACK - 1) & 1
    return bool(both) and bool(_stacks_of(hang, name))


def _stacks_of(hang: Folder, name: str) -> str:
    """Return the name of the file that a process made for its stacks; empty where it has none."""
    return next((entry for entry in sorted(hang.names()) if entry.startswith("stacks-%s-" % name)), "")


def _unacknowledged(pid: int) -> List[Dict[str, Any]]:
    """Return the process's connections with unacknowledged data, and how often they were sent again (/proc/net/tcp)."""
    found = []
    for name in ("tcp", "tcp6"):
        for line in kernel_text("/proc/%d/net/%s" % (pid, name), 1 << 20).splitlines()[1:]:
            fields = line.split()
            if len(fields) > 6 and fields[3] == _ESTABLISHED and int(fields[4].split(":")[0], 16):
                found.append({"local": _address(fields[1]), "peer": _address(fields[2]), "again": int(fields[6], 16)})
    return [entry for entry in found if entry["again"]][:_PROCESSES]


def _address(text: str) -> str:
    """Return the IPv4 address of "0100007F:1F90", also of one that is mapped into IPv6; another text as it is."""
    digits = text.split(":")[0]
    if len(digits) == 32 and digits[:24] == "0000000000000000FFFF0000":
        digits = digits[24:]
    if len(digits) != 8:
        return text
    return ".".join(str(byte) for byte in reversed(bytes.fromhex(digits)))


def _ask_nccl(hang: Folder) -> None:
    """Have PyTorch's own threads dump where they wait for it at a pipe (TORCH_NCCL_DEBUG_INFO_PIPE_FILE)."""
    for name in hang.names():
        if name.startswith("pipe_") and name.endswith(".pipe"):
            with suppress(OSError):  # no process listens
                pipe = os.open(name, os.O_WRONLY | FILE, dir_fd=hang.fd)
                os.write(pipe, b"1")
                os.close(pipe)


def _ras() -> str:
    data, until = b"", time.monotonic() + _RAS_S
    try:
        with socket.create_connection(_RAS, timeout=1) as connection:
            connection.settimeout(2)
            connection.sendall(b"verbose status\n")
            for chunk in iter(lambda: connection.recv(65536), b""):
                data += chunk
                if len(data) >= _STACKS or time.monotonic() > until:
                    break
    except OSError as error:
        return "no answer: %s" % (error.strerror or error)
    return data.decode("utf-8", "replace")


def _py_spy(found: List[processes.Process]) -> Optional[str]:
    """Return py-spy of the node, or of the environment that the job runs in."""
    for process in found if shutil.which("py-spy") is None else []:
        argv = kernel_text("/proc/%d/cmdline" % process.pid, _TEXT).split("\0")
        beside = os.path.join(os.path.dirname(argv[0]), "py-spy") if argv[0].startswith("/") else ""
        if beside and os.access(beside, os.X_OK) and _ours(process.pid, beside):
            return beside
    return shutil.which("py-spy")


def _ours(pid: int, program: str) -> bool:
    """Return whether a program that a process's argv leads to may be run here: the process can write any path into it,
    and one in a container means a path of the container's."""
    try:
        if os.stat("/proc/%d/ns/mnt" % pid).st_ino != os.stat("/proc/self/ns/mnt").st_ino:
            return False
        if os.geteuid() == 0:
            return bool(own_file(program))
        return {os.stat("/proc/%d" % pid).st_uid, os.stat(program).st_uid} <= {0, os.geteuid()}
    except OSError:
        return False


def _spied(program: str, pid: int) -> str:
    """Return the stacks as py-spy reads them without stopping the process, or its error."""
    argv = [program, "dump", "--nonblocking", "--pid", str(pid)]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=3
        )
    except (OSError, subprocess.SubprocessError) as error:
        return "py-spy: %s" % error
    return done.stdout.decode("utf-8", "replace")[:_STACKS]


def _write(hang: Folder, name: str, document: Dict[str, Any]) -> None:
    with os.fdopen(hang.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)


def _has(hang: Folder, name: str) -> bool:
    """Return whether the file has come, since `_forget`."""
    about = hang.look(name)
    return about is not None and about.st_size > 0
