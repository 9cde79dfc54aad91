"""QEMU's two JSON line protocols over Unix sockets: QMP for the machine, and the guest agent's for what runs in it."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.lab.machine import LabError


class JsonLines:
    """One request at a time: `ask("command", argument=...)` returns what stands under `return`. Raises LabError."""

    def __init__(self, path: Path, *, timeout: float) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise LabError(f"{path}: {error}") from error
        self._lines = self._socket.makefile("rb")

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lines.close()
        self._socket.close()

    def ask(self, command: str, /, **arguments: object) -> Any:
        request = {"execute": command, **({"arguments": arguments} if arguments else {})}
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise LabError(f"{command} on {self._path}: {error}") from error
        return self.answer(command)

    def answer(self, command: str) -> Any:
        """The next answer, which is the one to `command` unless an earlier client left one unread."""
        try:
            while line := self._lines.readline():
                answer = json.loads(line)
                if "error" in answer:
                    raise LabError(f"{command}: {answer['error'].get('desc')}")
                if "return" in answer:
                    return answer["return"]
        except OSError as error:
            raise LabError(f"{command} on {self._path}: {error}") from error
        raise LabError(f"{command} on {self._path}: the other end is gone")


def monitor(path: Path) -> JsonLines:
    """QMP, ready for commands."""
    connection = JsonLines(path, timeout=60)
    connection.ask("qmp_capabilities")
    return connection


def agent(path: Path, timeout: float) -> JsonLines:
    """The guest agent, in step: what an earlier client left unread is thrown away. Waits until the agent is there."""
    deadline = time.monotonic() + timeout
    while True:
        connection = JsonLines(path, timeout=5)
        try:
            number = int(time.monotonic() * 1000) % 2**31
            answer = connection.ask("guest-sync", id=number)
            while answer != number:
                answer = connection.answer("guest-sync")
            connection._socket.settimeout(timeout)
            return connection
        except LabError:
            connection.__exit__(None, None, None)
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
