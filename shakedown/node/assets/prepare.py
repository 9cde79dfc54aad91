"""Runs on a node (python3 >= 3.8, standard library only): have a program in an image prepare a folder of data, once.

Reads one JSON object from standard input: folder, image, command, workdir, variables, engine, label, run_id, timeout_s.
What the program says goes to standard output, and a line now and then, so that a controller that is gone is noticed. It
fails as `run_script` does. The program works in a part of this run's own, which gets its name
when it is whole. The engine takes paths by their names, as root: so no other user may be able to lay a link there.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import time
from typing import Any, Dict

from shakedown.node.assets.child import Output, running
from shakedown.node.assets.lease import Lease, here, leftovers, sole
from shakedown.node.assets.words import Failure, run_script, say
from shakedown.node.data import MARK, key_of, listing, prepared
from shakedown.node.safe_files import Folder, sound

EVERY_S = 10.0
LINES = 20_000  # of the program that are passed on
LOST = "another node took over because this node did not renew its lock"
MAGIC = b"MMIDIDX"  # Megatron's indexed data begins with this: a page of a proxy or an empty file is no data set


class Shown(Output):
    """The program's output, passed on as far as a person would read it. `gone`: no person listens any more."""

    gone = False

    def take(self, line: str) -> None:
        super().take(line)
        if self.count <= LINES and not self.gone:
            try:
                say(line)
            except OSError:
                self.gone = True


def run_program(job: Dict[str, Any], name: str, part: str, lease: Lease, deadline: float) -> None:
    """Run the program to its end, or until time, lock or controller are lost; then remove its container."""
    variables = [word for key, value in job["variables"].items() for word in ("--env", "{}={}".format(key, value))]
    options = ["--rm", "--pull", "never", "--network", "host", "--entrypoint=", "--name", name]
    label = ["--label", "{}={}".format(job["label"], job["run_id"])]
    place = ["--volume", part + ":/data", "--workdir", job["workdir"], job["image"]]
    output, begun = Shown(), time.monotonic()
    shown, started = begun, False
    try:
        with running([job["engine"], "run", *options, *label, *variables, *place, *job["command"]], output) as runs:
            started = True
            while runs():
                now = time.monotonic()
                if now > deadline:
                    raise Failure(
                        "program", "the program was stopped after {:.0f} s: raise timeout_s".format(now - begun)
                    )
                if lease.lost:
                    raise Failure("program", LOST + ": check this node's disk")
                if output.gone or now - shown > EVERY_S:
                    shown = now
                    say("{}: preparing for {:.0f} s".format(job["folder"], now - begun))
        if output.code:
            last = " | ".join(output.last) or "no output"
            raise Failure("program", "the program ended with exit code {}: {}".format(output.code, last))
    except FileNotFoundError:
        raise Failure("program", "{} is not installed".format(job["engine"])) from None
    finally:
        if started:
            remove_container(job, name)


def remove_container(job: Dict[str, Any], name: str) -> None:
    """Remove the container, and prove that it is gone."""
    options: Any = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT, "timeout": 120}
    try:
        subprocess.run([job["engine"], "rm", "--force", name], stdout=subprocess.DEVNULL, **options)
        look = ["ps", "--all", "--quiet", "--filter", "name=^{}$".format(name)]
        left = subprocess.run([job["engine"], *look], stdout=subprocess.PIPE, **options)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failure("program", "the container {} could not be removed: {}".format(name, error)) from None
    if left.returncode or left.stdout.strip():
        words = left.stdout.decode("utf-8", "replace").strip()
        raise Failure("program", "the container {} could not be removed: {}".format(name, words))


def check(folder: Folder) -> None:
    """Require a Megatron index with its data, and no index without data."""
    files = listing(folder)
    indexes = [path for path in files if path.endswith(".idx")]
    bad = [path for path in indexes if not files.get(path[:-4] + ".bin") or head(folder, path) != MAGIC]
    if not indexes or bad:
        where = " ({})".format(", ".join(bad[:3])) if bad else ""
        raise Failure("program", "the program left no Megatron index with its data" + where)


def head(folder: Folder, path: str) -> bytes:
    *above, name = path.split("/")
    inner = folder
    for part in above:
        inner = inner.down(part)
    with os.fdopen(inner.open(name, os.O_RDONLY), "rb") as handle:
        return handle.read(len(MAGIC))


def work(job: Dict[str, Any], parent: Folder, name: str, lease: Lease, deadline: float) -> None:
    stands = prepared(job["folder"])
    if stands == "prepared":
        say("{}: prepared by another node meanwhile".format(job["folder"]))
        return
    if stands != "absent":
        raise Failure("program", stands)
    parts = ".{}.part-".format(name)
    for left in leftovers(parent, parts):
        say("{}: a run that did not end has left {}: removed".format(job["folder"], left))
        parent.remove_tree(left)
    part = "{}{}-{}".format(parts, here(), lease.token[:8])
    os.mkdir(part, 0o755, dir_fd=parent.fd)
    try:
        container = "shakedown-{}-{}".format(job["run_id"], lease.token[:8])
        run_program(job, container, os.path.join(parent.path, part), lease, deadline)
        inner = parent.down(part)
        own(inner)
        check(inner)
        mark = {"run": job["run_id"], "node": socket.gethostname(), "image": job["image"], "command": job["command"]}
        inner.write(MARK, json.dumps({**mark, "files": listing(inner)}).encode(), 0o644)
        if not lease.is_held():
            raise Failure("program", LOST)
        found = parent.look(name)
        if found is not None and stat.S_ISDIR(found.st_mode):
            os.rmdir(name, dir_fd=parent.fd)  # an empty one
        os.rename(part, name, src_dir_fd=parent.fd, dst_dir_fd=parent.fd)
        parent.sync()
    except BaseException:
        parent.remove_tree(part)
        raise


def own(folder: Folder) -> None:
    """Take the folder back: the program may have given it away, and the mark would then prove nothing."""
    with folder.readable() as fd:
        if os.geteuid() == 0:
            os.fchown(fd, 0, 0)
        os.fchmod(fd, 0o755)


def main(job: Dict[str, Any]) -> None:
    deadline = time.monotonic() + job["timeout_s"]
    above, _, name = job["folder"].rstrip("/").rpartition("/")
    if name in ("", ".", ".."):
        raise Failure("folder", "the path of the folder ends without a name")
    parent = sound(above or "/", 0o755, or_sticky=True)

    local = "prepare-" + key_of(parent, name)
    with sole(parent, ".{}.shakedown-lock".format(name), local, job["timeout_s"], job["folder"]) as lease:
        work(job, parent, name, lease, deadline)


if __name__ == "__main__":
    run_script(main)
