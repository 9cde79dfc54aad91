"""Where runs are kept: by itself, so that who only names it loads nothing of what judges runs."""

import os
from pathlib import Path


def runs_folder() -> Path:
    """$SHAKEDOWN_RUNS, or runs/ in the current folder."""
    return Path(os.environ.get("SHAKEDOWN_RUNS") or "runs")
