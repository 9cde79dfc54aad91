"""The launch plan: derived from the nodes' states, checked as a whole, and printed."""

from shakedown.smoke.plan.draft import PlanError
from shakedown.smoke.plan.make import make_plan
from shakedown.smoke.plan.render import render

__all__ = ["PlanError", "make_plan", "render"]
