"""What a job needs of its node: looked at before any rank starts, and by a dry run. Nothing is changed. A need is a
dictionary with a `kind` (of `LOOKS`) and what that kind takes; `shakedown/jobs/launch.py` has it as a model."""

from __future__ import annotations

import errno
import glob
import os
import shutil
import socket
import subprocess
from typing import Any, Dict, List

from . import folder

_LIMIT_S = 60.0  # for one program that is asked; a virtual environment on a network file system is slow
_WORDS = 300  # characters of what a program says
# Nothing is imported but the parents of dotted names: importing torch takes seconds.
_MODULES = """
import importlib.util, sys
def there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False
print("shakedown lacks:" + " ".join(name for name in sys.argv[1:] if not there(name)))
"""


def lacking(needs: List[Dict[str, Any]], environment: Dict[str, str]) -> List[Dict[str, str]]:
    """Return what the node lacks of the needs, each with its kind and in words. `environment`: the job's."""
    found, without = [], set()  # the folders of interpreters that lack something: their programs say no more
    for need in needs:
        kind, place = need["kind"], os.path.dirname(need["path"])
        text = "" if kind == "program" and place in without else LOOKS[kind](need, environment)
        if text:
            found.append({"kind": kind, "text": text})
            without.update([place] if kind == "python" else [])
    return found


def _missing(path: str) -> str:
    """Return why there is no program at a path; empty: there is one."""
    if not os.path.exists(path):
        return path + (" is a link to what is missing" if os.path.islink(path) else " is missing")
    return "" if os.path.isfile(path) and os.access(path, os.X_OK) else path + " is no program that this user may run"


def _run(argv: List[str], environment: Dict[str, str]) -> "subprocess.CompletedProcess[str]":
    options: Any = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": _LIMIT_S}
    return subprocess.run(argv, env=environment, **options)


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return "it gave no answer within %.0f s" % _LIMIT_S
    if isinstance(error, OSError) and error.errno == errno.ENOENT:
        return "the interpreter that it names is missing"
    return getattr(error, "strerror", None) or str(error)


def _python(need: Dict[str, Any], environment: Dict[str, str]) -> str:
    path, modules = need["path"], need["modules"]
    absent = _missing(path)
    if absent:
        return absent
    try:
        done = _run([path, "-B", "-c", _MODULES, *modules], environment)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return "%s cannot run: %s" % (path, _reason(error))
    lines = [line for line in done.stdout.splitlines() if line.startswith("shakedown lacks:")]
    if done.returncode or not lines:
        last = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()[-1]
        return "%s cannot run: exit code %d: %s" % (path, done.returncode, last[:_WORDS])
    left = lines[-1].partition(":")[2].split()
    remedy = "pip install 'shakedown[train]' there, or name another venv in smoke.venv"
    return "%s lacks %s (%s)" % (path, ", ".join(left), remedy) if left else ""


_ABSENT = ("no such image", "no such object", "image not known")  # docker's words, and podman's


def _image(need: Dict[str, Any], environment: Dict[str, str]) -> str:
    try:
        done = _run([need["path"], "image", "inspect", "--format", "{{.Id}}", need["image"]], environment)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        reason = "it is not installed" if isinstance(error, FileNotFoundError) else _reason(error)
        return "%s cannot be asked for %s: %s" % (need["path"], need["image"], reason)
    if not done.returncode:
        return ""
    last = (done.stderr.strip() or "no such image").splitlines()[-1][:_WORDS]
    absent = any(words in last.lower() for words in _ABSENT)
    return "%s %s %s: %s" % (need["path"], "has no image" if absent else "cannot be asked for", need["image"], last)


def _data(need: Dict[str, Any], _environment: Dict[str, str]) -> str:
    """Look for data: a path may be the beginning of the names of several files, as Megatron's .bin and .idx."""
    path = need["path"]
    there = [path] if os.path.exists(path) else glob.glob(glob.escape(path) + "*")
    if not there:
        return "the data %s are missing" % path
    closed = [name for name in there if not os.access(name, os.R_OK)]
    return "%s cannot be read by this user" % closed[0] if closed else ""


def _room(need: Dict[str, Any], _environment: Dict[str, str]) -> str:
    path: str = need["path"] or folder.parent()
    refused = folder.refusal(path) if need["path"] else ""
    if refused:
        return "no files are written in %s: %s" % (path, refused)
    while not os.path.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    if not os.access(path, os.W_OK | os.X_OK):
        return "%s cannot be written by this user, and the job's files are to be there" % path
    free = shutil.disk_usage(path).free
    if free >= need["size"]:
        return ""
    whose = "the job" if need["path"] else "the run folder"
    return "%s has %.1f MiB free, and %s needs %.0f MiB" % (path, free / 2**20, whose, need["size"] / 2**20)


def _port(need: Dict[str, Any], _environment: Dict[str, str]) -> str:
    """Bind the port as the job's store does: a connection of a run before that has ended is no hindrance."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((need["address"], need["port"]))
            server.listen(1)  # of two that may share a port, only one can listen
        except OSError as error:
            return "port %d of %s cannot be used: %s" % (need["port"], need["address"], error.strerror or error)
    return ""


LOOKS = {"python": _python, "image": _image, "data": _data, "room": _room, "port": _port}
LOOKS["program"] = lambda need, _environment: _missing(need["path"])
