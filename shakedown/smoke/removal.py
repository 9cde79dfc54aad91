"""The end of a run's containers, proved: commands for a node's plan."""

from __future__ import annotations

import shlex

from shakedown.smoke.launch import CONTAINER_LABEL

# An engine that does not answer, or a container that is there again, is an exit code other than 0 and words: what
# cannot be shown to be gone may still hold the GPUs. What `rm` says decides nothing. A client that was killed while
# the engine made its container leaves one that comes a moment later: it has to be absent twice, a second apart.
_REMOVE = """
absent=0
for _ in 1 2 3 4 5 6 7 8; do
    found=$({listing}) || {{ echo "{engine} does not say which containers there are" >&2; exit 1; }}
    if [ -n "$found" ]; then
        absent=0
        {engine} rm --force $found || sleep 1
    elif [ $absent = 1 ]; then
        exit 0
    else
        absent=1
        sleep 1
    fi
done
echo "still there, or there again, after rm --force:" $found >&2
exit 1
"""


def of_run(engine: str, run_id: str, name: str) -> list[str]:
    """Remove the containers of a run on this node whose names match (a regular expression), running or not, and
    nothing else; fails where one may still be there."""
    listing = _listing(engine, f"label={CONTAINER_LABEL}={run_id}", f"name=^/?{name}$")
    return ["sh", "-c", _REMOVE.format(listing=listing, engine=shlex.quote(engine))]


def of_earlier_runs(engine: str) -> list[str]:
    """Remove what earlier runs left stopped: a node that loses its power in mid-run cannot tidy up after it. It holds
    nothing but disk, so one that stays is told in the log of the cleanup, and is no fault of this run."""
    listing = _listing(engine, f"label={CONTAINER_LABEL}", "status=exited")
    return ["sh", "-c", f"{listing} | xargs --no-run-if-empty {shlex.quote(engine)} rm || true"]


def _listing(engine: str, *filters: str) -> str:
    return shlex.join([engine, "ps", "--all", "--quiet", *(word for each in filters for word in ("--filter", each))])
