"""Output whose reader has gone, as in `shakedown drift INVENTORY | head`: no work, and no exit code, hangs on it."""

import io
import os
import sys
from typing import Any


class _Outlet(io.FileIO):
    """A file descriptor that leads nowhere once its reader has gone."""

    def write(self, data: Any) -> int | None:  # type: ignore[override]
        try:
            return super().write(data)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())  # for what is started from here, too
            os.close(nowhere)
            return len(data)


def go_on_without_a_reader() -> None:
    """Have standard output and standard error of this process take what nobody reads any more. Without that the next
    line would end a run in its middle, with an exit code that says that the nodes have failed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper) or stream is not getattr(sys, f"__{name}__"):
            continue  # somebody has put something else there, or it is closed
        stream.flush()
        outlet = io.BufferedWriter(_Outlet(stream.fileno(), "wb", closefd=False))
        encoding, errors, by_lines = stream.encoding, stream.errors, stream.line_buffering
        setattr(sys, name, io.TextIOWrapper(outlet, encoding, errors, line_buffering=by_lines))
