"""The tool's own log, always to stderr (stdout carries results and pyinfra's --json).

Modules log with the standard library's `logging.getLogger("shakedown")` and `extra=`; structlog renders it. People get
what they need from the commands' own output, so that only warnings are shown unless JSON is asked for.
"""

import logging
import sys

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
