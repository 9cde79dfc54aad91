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
        return split(self.block(chunk))

    def block(self, chunk: bytes | str) -> str:
        """The same lines as one text."""
        text = self._decoder.decode(chunk) if isinstance(chunk, bytes) else chunk
        end = text.rfind("\n") + 1
        if not end:
            self._rest.append(text)
            self._length += len(text)
            return self.rest() if self._length > MAX_LINE else ""
        complete = "".join([*self._rest, text[:end]])
        self._rest, self._length = [text[end:]], len(text) - end
        return complete

    def close(self) -> list[str]:
        """What is left at the end of the log: a line that was cut, or nothing."""
        return split(self.rest(final=True))

    def rest(self, final: bool = False) -> str:
        """What there is of a line that is not complete; at the end of the log with what is left of a character."""
        line = "".join([*self._rest, self._decoder.decode(b"", final=True) if final else ""])
        self._rest, self._length = [], 0
        return line


def split(text: str) -> list[str]:
    """The lines of a text, with their line ends; the last one may have none."""
    *complete, last = text.split("\n")
    lines = [line + "\n" for line in complete]
    return [*lines, last] if last else lines
