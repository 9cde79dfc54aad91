"""The tool's own output: its log, always to stderr (stdout carries results and pyinfra's --json).

Modules log with the standard library's `logging.getLogger("shakedown")` and `extra=`; structlog renders it. People get
what they need from the commands' own output, so that only warnings are shown unless JSON is asked for.
"""

import io
import logging
import os
import sys
from typing import Any

LOG_FORMAT = "SHAKEDOWN_LOG_FORMAT"
"""The environment variable that says `json`: plain pyinfra has no option for it."""


def configure(log_format: str = "console") -> None:
    """Show everything as one JSON object per line ("json"), or warnings as text ("console"). Once in a process."""
    logger = logging.getLogger("shakedown")
    if log_format != "json" or logger.handlers:
        return
    import structlog  # here only: it takes a tenth of a drift check to load

    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.ExtraAdder(),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


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
