"""The tool's own log: structlog, always to stderr (stdout carries results and pyinfra's --json)."""

from __future__ import annotations

import logging
import sys

import structlog


def configure(log_format: str = "console") -> None:
    """Render as text for people ("console"), who see warnings, or one JSON object per line ("json"), everything."""
    renderer: structlog.typing.Processor
    if log_format == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO if log_format == "json" else logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
