"""The launch plan: derived from the nodes' states, checked as a whole, and printed."""

from shakedown.jobs.plan.draft import PlanError
from shakedown.jobs.plan.make import make_plan
from shakedown.jobs.plan.render import render

__all__ = ["PlanError", "make_plan", "render"]
