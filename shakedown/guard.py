"""Where environments that were installed earlier look for pyinfra's entry point; it is `shakedown.runner.guard` now."""

from shakedown.runner.guard import Guard

__all__ = ["Guard"]
