"""Runs on a node (python3 >= 3.8, standard library only): take one image from another node, and load it into docker.

Reads one JSON object from standard input, so that the token stands in no argv:
    id, address (of the giver), ports (to be tried), token, wait_s, stall_s, timeout_s, most_bytes, room_bytes
What comes goes through archive.py, which lets nothing but the image with that id reach docker; nothing is written to
the disk besides what docker writes. A failure is one line on standard error, exit code 1.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any, Dict

from shakedown.node.assets.archive import Refused, let_through
from shakedown.node.assets.handover import CHUNK, HANDSHAKE_S, Stranger, answer
from shakedown.node.assets.words import clean, say

AGAIN_S = 0.3  # between two rounds over the ports: the giver may not listen yet


class TakeError(Exception):
    """Why nothing was taken."""


def ask_docker(*words: str) -> str:
    try:
        done = subprocess.run(["docker", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TakeError("docker {}: {}".format(words[0], error)) from None
    return done.stdout.decode("utf-8", "replace").strip() if not done.returncode else ""


def check_room(job: Dict[str, Any]) -> None:
    """docker unpacks the archive beside its store before it moves it there."""
    root = ask_docker("info", "--format", "{{.DockerRootDir}}")
    while root and not os.path.exists(root):
        root = os.path.dirname(root)
    free = os.statvfs(root or "/")
    if free.f_bavail * free.f_frsize < job["room_bytes"]:
        words = "{} has {:.1f} GiB free, {:.1f} GiB are needed"
        room = free.f_bavail * free.f_frsize
        raise TakeError(words.format(root or "/", room / 2**30, job["room_bytes"] / 2**30))


def connect(job: Dict[str, Any]) -> socket.socket:
    """A connection to the giver, which has proved that it is the one."""
    deadline = time.monotonic() + job["wait_s"]
    why = "nothing was tried"
    while time.monotonic() < deadline:
        for port in job["ports"]:
            try:
                connection = socket.create_connection((job["address"], port), HANDSHAKE_S)
            except OSError as error:
                why = str(error)
                continue
            try:
                answer(connection, job["token"])
                connection.settimeout(job["stall_s"])
                return connection
            except (OSError, Stranger) as error:
                why = str(error)
                connection.close()
        time.sleep(AGAIN_S)
    raise TakeError("no giver at {} within {:.0f} s: {}".format(job["address"], job["wait_s"], why))


def take_image(job: Dict[str, Any]) -> int:
    """Take it, load it, see that it is there. Returns the bytes."""
    check_room(job)
    with connect(job) as connection:
        child = subprocess.Popen(
            ["docker", "load", "--quiet"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert child.stdin is not None and child.stdout is not None
        over = threading.Event()

        def end() -> None:
            over.set()
            child.kill()
            try:
                connection.shutdown(socket.SHUT_RDWR)  # a giver that says a byte now and then is never silent
            except OSError:
                pass

        limit = threading.Timer(job["timeout_s"], end)
        limit.daemon = True
        limit.start()
        try:
            source: Any = connection.makefile("rb", CHUNK)
            with source:
                taken = let_through(source, child.stdin, job["id"], job["most_bytes"])
            child.stdin.close()
            said = child.stdout.read(20000).decode("utf-8", "replace")
            if child.wait():
                raise TakeError("docker load: {}".format(said))
        except (Refused, OSError) as error:
            if over.is_set():
                raise TakeError("not done in {:.0f} s".format(job["timeout_s"])) from None
            if isinstance(error, BrokenPipeError):
                said = child.stdout.read(2000).decode("utf-8", "replace")
                raise TakeError("docker load: {}".format(said)) from None
            raise
        finally:
            limit.cancel()
            if child.poll() is None:
                child.kill()
            child.wait()
    if ask_docker("image", "inspect", "--format", "{{.Id}}", job["id"]) != job["id"]:
        raise TakeError("docker load reported success, but {} is not there".format(job["id"]))
    return taken


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(143))
    job = json.load(sys.stdin)
    began = time.monotonic()
    try:
        taken = take_image(job)
    except (OSError, Refused, TakeError) as error:
        sys.exit(clean(error))
    say("took {:.0f} MiB from {} in {:.0f} s".format(taken / 2**20, job["address"], time.monotonic() - began))


if __name__ == "__main__":
    main()
