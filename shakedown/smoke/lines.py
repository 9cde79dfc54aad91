"""A stream of bytes or text, cut into lines as they become complete."""

from __future__ import annotations

import codecs

MAX_LINE = 1 << 20  # characters: a stream without line ends (a core dump on stdout) must not fill the memory


class LineSplitter:
    """Takes chunks of a log, of any size, and gives back the lines that are complete.

    A line keeps its `\\n`: a line without one was cut by the end of the log (or is longer than `MAX_LINE`). Invalid
    UTF-8 becomes U+FFFD. A carriage return alone ends no line, so that line numbers agree with `grep -n`.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest: list[str] = []
        self._length = 0

    def feed(self, chunk: bytes | str) -> list[str]:
        """The lines that this chunk completes."""
        text = self._decoder.decode(chunk) if isinstance(chunk, bytes) else chunk
        if "\n" not in text:
            self._rest.append(text)
            self._length += len(text)
            return self._take() if self._length > MAX_LINE else []
        self._rest.append(text)
        *complete, rest = "".join(self._rest).split("\n")
        self._rest, self._length = [rest], len(rest)
        return [line + "\n" for line in complete]

    def close(self) -> list[str]:
        """What is left at the end of the log: a line that was cut, or nothing."""
        self._rest.append(self._decoder.decode(b"", final=True))
        return self._take()

    def _take(self) -> list[str]:
        line = "".join(self._rest)
        self._rest, self._length = [], 0
        return [line] if line else []
