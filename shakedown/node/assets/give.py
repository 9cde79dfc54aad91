"""Runs on a node (python3 >= 3.8, standard library only): give one image of docker's store to one other node.

Reads one JSON object from standard input, so that the token stands in no argv:
    id, address (of this node, to listen on), ports (to be tried), token, wait_s, stall_s, timeout_s
Listens on that address alone, until the one receiver that has the token has come or `wait_s` are over, and writes
nothing to the disk. A failure is one line on standard error, exit code 1.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any, Dict

from shakedown.node.assets.handover import CHUNK, Stranger, greet
from shakedown.node.assets.words import clean, say

STRANGERS = 50  # connections without the token, after which nobody is waited for any more


class GiveError(Exception):
    """Why nothing was given."""


def listen(job: Dict[str, Any]) -> socket.socket:
    """A listener on the first of the ports that is free."""
    why = "no port was named"
    for port in job["ports"]:
        server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((job["address"], port))
            server.listen(8)
            return server
        except OSError as error:
            why = str(error)
            server.close()
    raise GiveError("cannot listen on {}: {}".format(job["address"], why))


def receiver(server: socket.socket, job: Dict[str, Any]) -> socket.socket:
    """The connection of the one that has the token; the listener is closed before it gets anything."""
    deadline = time.monotonic() + job["wait_s"]
    why = "nobody came"
    with server:
        for _ in range(STRANGERS):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            server.settimeout(left)
            try:
                connection, peer = server.accept()
            except socket.timeout:
                break
            try:
                greet(connection, job["token"])
                connection.settimeout(job["stall_s"])
                return connection
            except (OSError, Stranger) as error:
                why = "{} came: {}".format(peer[0], error)
                connection.close()
    raise GiveError("not fetched within {:.0f} s: {}".format(job["wait_s"], why))


def give(job: Dict[str, Any]) -> int:
    """Stream `docker save` to the receiver. Returns the bytes."""
    with receiver(listen(job), job) as connection:
        deadline = time.monotonic() + job["timeout_s"]
        child = subprocess.Popen(
            ["docker", "save", job["id"]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert child.stdout is not None and child.stderr is not None
        limit = threading.Timer(job["timeout_s"], child.kill)  # also where docker says nothing
        limit.daemon = True
        limit.start()
        sent = 0
        try:
            while True:
                chunk = child.stdout.read(CHUNK)
                if not chunk:
                    break
                connection.sendall(chunk)
                sent += len(chunk)
                if time.monotonic() > deadline:
                    raise GiveError("not done in {:.0f} s".format(job["timeout_s"]))
            if time.monotonic() > deadline:
                raise GiveError("not done in {:.0f} s".format(job["timeout_s"]))
            if child.wait(60):
                raise GiveError(clean(child.stderr.read(2000).decode("utf-8", "replace")))
        finally:
            limit.cancel()
            if child.poll() is None:
                child.kill()
                child.wait()
            child.stdout.close()
            child.stderr.close()
    return sent


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(143))
    job = json.load(sys.stdin)
    try:
        say("gave {:.0f} MiB".format(give(job) / 2**20))
    except (OSError, GiveError, subprocess.SubprocessError) as error:
        sys.exit(clean(error))


if __name__ == "__main__":
    main()
