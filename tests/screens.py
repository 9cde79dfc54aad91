"""A terminal for tests: a pseudo terminal, and what stands on it. It knows the few sequences that a screen of ours may
send, and refuses every other one, since that can only be a text of somebody else."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence

from rich.cells import cell_len

_SEQUENCE = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])")


class Screen:
    """What a terminal of this size shows: `alternate` while a program has the whole of it."""

    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self.alternate, self.cursor, self.colours = False, True, False
        self.row = self.column = 0
        self._rows = [""] * lines
        self._kept = list(self._rows)

    def resize(self, columns: int, lines: int) -> None:
        """Take another size; what stood there is gone, so that only what is drawn again counts."""
        self.columns, self.lines = columns, lines
        self.row, self._rows = 0, [""] * lines

    @property
    def text(self) -> list[str]:
        return [row.rstrip() for row in self._rows]

    def feed(self, text: str) -> None:
        while text:
            if found := _SEQUENCE.match(text):
                self._sequence(*found.groups())
                text = text[found.end() :]
            else:
                assert text[0] in "\r\n" or text[0].isprintable(), f"a text moves the terminal: {text[:40]!r}"
                self._put(text[0])
                text = text[1:]

    def _put(self, sign: str) -> None:
        if sign == "\r":
            self.column = 0
        elif sign == "\n":
            if self.row == self.lines - 1:
                self._rows = [*self._rows[1:], ""]
            self.row = min(self.row + 1, self.lines - 1)
        else:
            if self.column + cell_len(sign) > self.columns:
                self._put("\r")
                self._put("\n")
            row = self._rows[self.row].ljust(self.column)
            self._rows[self.row] = row[: self.column] + sign + row[self.column + 1 :]
            self.column += cell_len(sign)

    def _sequence(self, private: str, numbers: str, end: str) -> None:
        match private + end, numbers:
            case "?h" | "?l", "1049":
                if end == "h":
                    self._kept, self._rows = self._rows, [""] * self.lines
                else:
                    self._rows = self._kept
                self.alternate = end == "h"
            case "?h" | "?l", "25":
                self.cursor = end == "h"
            case "H", "":
                self.row = self.column = 0
            case "J", "2":
                self._rows = [""] * self.lines
            case "m", _:
                self.colours = self.colours or bool({"3", "4", "9", "10"} & {n[:-1] for n in numbers.split(";")})
            case sequence:
                raise AssertionError(f"not a sequence of our screens: {sequence}")


class Program:
    """A program on a terminal of its own."""

    def __init__(self, command: Sequence[str], columns: int, lines: int, environment: Mapping[str, str]) -> None:
        self.screen = Screen(columns, lines)
        self._terminal, slave = pty.openpty()
        self._size(columns, lines)
        own = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        own |= {"TERM": "xterm-256color", **environment}
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=own, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(slave)
        self._rest = b""

    def _size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns: int, lines: int) -> None:
        self.screen.resize(columns, lines)
        self._size(columns, lines)

    def type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def until(self, holds: Callable[[Screen], bool], seconds: float = 60.0) -> None:
        """Show what the program writes until that holds."""
        end = time.monotonic() + seconds
        while not holds(self.screen):
            assert time.monotonic() < end, "\n".join(self.screen.text)
            if not self._read():
                assert holds(self.screen), "\n".join(self.screen.text)

    def end(self, seconds: float = 60.0) -> int:
        """Wait for its end; its exit code."""
        while self._read():
            pass
        return self.process.wait(seconds)

    def _read(self) -> bool:
        if not select.select([self._terminal], [], [], 1.0)[0]:
            return self.process.poll() is None
        try:
            data = self._rest + os.read(self._terminal, 1 << 16)
        except OSError:  # no process has the terminal any more
            return False
        whole = data[: data.rindex(b"\x1b")] if b"\x1b" in data[-8:] and not data.endswith(b"m") else data
        text = whole.decode("utf-8", "ignore")
        self._rest = data[len(text.encode()) :]
        self.screen.feed(text)
        return True

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._terminal)
