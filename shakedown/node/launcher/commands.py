"""The launcher's commands. Each prints one JSON document; `error` in it says that the command was refused."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import traceback
import zlib
from contextlib import suppress
from typing import Any, Dict, List

from .. import safe_files, sign
from . import control, folder, lock, needs, processes, standstill, watchdog

FETCH_LIMIT = 1 << 20  # bytes of a log in one answer
_DIGEST_S = 3.0  # for the digest of a log: the controller waits for 8 s
_LOOK_S = 1.0  # between two looks of the guardian
_GUARD_S = 5.0  # that the guardian waits for an answer, beyond the lease, and again once it has continued the watchdog


def prepare(job: Dict[str, Any], sources: Dict[str, str]) -> Dict[str, Any]:
    """Leave a watchdog and its guardian behind for the job (as `remote.py` describes it), and say where its folder is
    and what earlier runs have left. The watchdog is forked here, so that secrets go from standard input into its memory
    and never to a disk."""
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            return control.loads(pipe.read() or b'{"error": "the watchdog ended at once"}')
    os.close(reader)
    os.setsid()
    child = os.fork()
    try:
        if child:
            os.close(writer)
            _guard(child, job["run_id"], float(job["lease_s"]))
        else:
            _become_watchdog(job, sources, writer)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _guard(child: int, run_id: str, lease_s: float) -> None:
    """Stand by while the watchdog lives, and see to it that the run ends. A watchdog that does not answer for a lease
    was stopped (SIGSTOP): it is continued, and finds its lease over. One that hangs is killed, and the guardian ends
    the run in its place, as where it was killed. The guardian holds no lock of the node."""
    silence = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(silence, standard)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])  # the watchdog's end is to wake this one
    path, patience_s = folder.path_of(run_id), lease_s + _GUARD_S
    place: Dict[str, Any] = {}
    since, continued = time.monotonic(), False
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        with suppress(control.Silent):
            place = place or folder.read_json(path, "control.json")  # once: the file system may go
            control.ask(place, {}, _GUARD_S)  # it renews no lease
            since, continued = time.monotonic(), False
        if time.monotonic() - since > (_GUARD_S if continued else patience_s):
            os.kill(child, signal.SIGKILL if continued else signal.SIGCONT)
            since, continued = time.monotonic(), True
        signal.sigtimedwait([signal.SIGCHLD], _LOOK_S)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    if os.waitpid(child, 0)[1] == 0:
        return
    if not continued:
        time.sleep(patience_s)  # the controller, or who killed it, may end the run
    if os.path.isdir(path):
        _Visit(path).stop("the watchdog was killed or did not answer for %.0f s" % patience_s)
    control.sweep()


def _become_watchdog(job: Dict[str, Any], sources: Dict[str, str], writer: int) -> None:
    answer: Dict[str, Any] = {}
    requests = path = run = None
    try:
        held = lock.take(job["run_id"])
        control.sweep()
        left = folder.sweep_old()  # first, since it may be what fills the disk
        path = folder.create(job["run_id"], {**job.pop("files"), **sources}, job["folders"])
        job = _substitute(job, path)
        # Run ids are seen by everybody who lists processes: a mark with nothing else in it any user could carry, and
        # be taken for what the run has left behind.
        job["mark"] = "%s/%s" % (job["mark"], os.urandom(8).hex())
        requests = control.RequestSocket()
        place = {"socket": requests.folder, "process": processes.identity(os.getpid()), "boot_id": processes.boot_id()}
        folder.write_json(path, "control.json", place)
        folder.write_json(path, "job.json", {**job, "secrets": [], "environment": {}})
        run = watchdog.Watchdog(held, requests, path, job)
        answer = {"run_dir": path, "python": sys.executable, "leftovers": left, "note": held.note}
    except safe_files.Busy as error:
        answer = {"error": str(error), "kind": "busy"}
    except (folder.Unusable, safe_files.Unsafe, OSError, ValueError) as error:
        answer = {"error": str(error), "kind": "unusable"}
        if requests is not None:
            requests.close()
        if path is not None:
            folder.remove(path)
    log = os.path.join(path, folder.OWN, "watchdog.log") if run and path else os.devnull
    output = os.open(log, os.O_WRONLY | os.O_CREAT, 0o600)
    silence = os.open(os.devnull, os.O_RDONLY)
    for standard, target in ((0, silence), (1, output), (2, output)):
        os.dup2(target, standard)
    with os.fdopen(writer, "wb") as pipe:
        pipe.write(json.dumps(answer).encode())
    if run is not None:
        run.serve()


def _substitute(value: Any, path: str) -> Any:
    """Fill `{run_dir}` into every text of the job."""
    if isinstance(value, str):
        return value.replace("{run_dir}", path)
    if isinstance(value, list):
        return [_substitute(item, path) for item in value]
    if isinstance(value, dict):
        return {key: _substitute(item, path) for key, item in value.items()}
    return value


class _Visit:
    """A command of a run that is there: it speaks with the watchdog, or does without when that has died."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.run_id = os.path.basename(path)

    def ask(self, command: str, **more: Any) -> Dict[str, Any]:
        """Return the watchdog's answer; of a dead watchdog, its last status. Raises Silent."""
        place = self._place()
        try:
            return {"watchdog": True, **control.ask(place, {"command": command, "run_id": self.run_id, **more})}
        except control.Dead:
            rebooted = place.get("boot_id", processes.boot_id()) != processes.boot_id()
            return {**self._last(), "rebooted": rebooted}

    def _place(self) -> Dict[str, Any]:
        return folder.read_json(self.path, "control.json")

    def _last(self) -> Dict[str, Any]:
        return {**folder.read_json(self.path, "status.json"), "marks": [], "watchdog": False}

    def _mark(self) -> str:
        return str(folder.read_json(self.path, "job.json").get("mark", self.run_id))

    def go(self) -> Dict[str, Any]:
        """Have the leader begin."""
        return self.ask("go")

    def poll(self, offset: int, devices: int) -> Dict[str, Any]:
        """Return the status, the leader's log from `offset`, and the events of devices from `devices`."""
        answer = self.ask("poll", offset=offset)
        answer.update(self.fetch(folder.LEADER_LOG, offset))
        answer["devices"] = self.fetch(folder.DEVICE_LOG, devices)
        answer["disk_free_bytes"] = shutil.disk_usage(self.path).free
        return answer

    def fetch(self, name: str, offset: int) -> Dict[str, Any]:
        """Return a part of a log: `data` (base64 of zlib) reaches to the new `offset`, `size` is the file's."""
        try:
            path = name.replace("{run_dir}", self.path)
            data, offset, size = folder.chunk(self.path, path, offset, FETCH_LIMIT)
        except OSError as error:
            return {"data": "", "offset": offset, "size": offset, "missing": "%s: %s" % (name, error.strerror or error)}
        return {"data": base64.b64encode(zlib.compress(data, 1)).decode(), "offset": offset, "size": size}

    def digest(self, name: str, length: int, question: str) -> Dict[str, Any]:
        """Return the size of a log, and the SHA-256 of its first `length` bytes; None where that takes too long.
        `question`: the node's signature on the digest is wanted (sign.py); empty: it is not."""
        try:
            digest, size = folder.digest(self.path, name.replace("{run_dir}", self.path), length, _DIGEST_S)
        except OSError as error:
            return {"missing": "%s: %s" % (name, error.strerror or error)}
        signed = {"signed": sign.log_digest(question, length, digest)} if question and digest else {}
        return {"sha256": digest, "size": size, **signed}

    def standstill(self) -> Dict[str, Any]:
        """Write down in the run's folder what its processes are doing."""
        return standstill.take(self.path, self._mark(), self._place().get("process", [None])[0])

    def stop(self, reason: str) -> Dict[str, Any]:
        """Have the run ended. A watchdog that does not answer may be stopped (SIGSTOP): it is continued. Where it has
        died, or still does not answer, end both here."""
        for _ in range(2):
            with suppress(control.Silent):
                answer = self.ask("stop", why=reason)
                break
            for process in processes.named(self._place().get("process")):
                processes.send(process, signal.SIGCONT)
        else:
            answer = {**self._last(), "rebooted": False}
        if answer["watchdog"] or answer.get("state") == watchdog.OVER:
            return answer
        job = folder.read_json(self.path, "job.json")
        survivors = processes.end(self._alive, float(job.get("grace_s", 3)), 10)
        answer.update(
            state=watchdog.OVER,
            ending=reason,
            survivors=[str(process) for process in survivors],
            cleanup_errors=self._clean_up(job),
        )
        folder.write_json(self.path, "status.json", answer)
        return answer

    def _alive(self) -> List[processes.Process]:
        return processes.members(self._mark(), None) + folder.watchdog_of(self.path)

    def _clean_up(self, job: Dict[str, Any]) -> List[str]:
        errors = []
        for argv in job.get("cleanup", []):
            try:
                subprocess.run(
                    argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=60, check=True, cwd=self.path
                )
            except (OSError, subprocess.SubprocessError) as error:
                errors.append(str(error))
        return errors

    def remove(self) -> Dict[str, Any]:
        """Remove the run's folder and let go of the node."""
        answer = self.ask("remove")
        if answer["watchdog"]:
            return answer
        alive = self._alive()
        if alive:
            return {"error": "still running: " + ", ".join(str(process) for process in alive)}
        return {"left": folder.remove(self.path)}


def begin(request: Dict[str, Any]) -> Dict[str, Any]:
    """Prepare a run, stop one whose folder the controller does not know, or say what the node lacks for a job."""
    if "needs" in request:
        return {"lacking": needs.lacking(request["needs"], {**os.environ, **request["environment"]})}
    return prepare(request["job"], request["sources"]) if "job" in request else _stop_by_id(request["stop"])


def _stop_by_id(request: Dict[str, Any]) -> Dict[str, Any]:
    """Stop the run that `request` names: the answer to `prepare` was lost. `kind` is "absent" without such a run."""
    path = folder.path_of(request["run_id"])
    if not os.path.lexists(path):
        return {"error": "there is no run %s" % request["run_id"], "kind": "absent"}
    try:
        answer = _Visit(path).stop(request["why"])
    except control.Silent as error:
        return {"error": str(error)}
    return {**answer, "run_dir": path, "python": sys.executable}


def main(arguments: List[str]) -> None:
    """Run one command of a run whose folder holds this file: "needs", or a method of `_Visit` and what it takes, in
    JSON."""
    run = _Visit(str(pathlib.Path(__file__).absolute().parents[3]))  # RUN/.launcher/node/launcher/commands.py
    if arguments == ["needs"]:
        found = needs.lacking(folder.read_json(run.path, "job.json").get("needs", []), dict(os.environ))
        sys.exit("; ".join(lack["text"] for lack in found) or 0)
    try:
        print(json.dumps(getattr(run, arguments[0])(**json.loads(arguments[1]))))
    except control.Silent as error:
        print(json.dumps({"silent": str(error)}))
