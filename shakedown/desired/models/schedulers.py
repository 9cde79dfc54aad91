"""Schedulers that own nodes, and the ways to start a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from shakedown.schedulers import registry

if TYPE_CHECKING:
    SchedulerName = str
    JobVia = str
else:
    SchedulerName = Literal[registry.names()]
    JobVia = Literal[("ssh", *registry.names())]
