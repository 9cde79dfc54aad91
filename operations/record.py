"""The way back: what stood there before the first change to a setting."""

import json
from dataclasses import asdict, dataclass

from pyinfra.api.command import FunctionCommand

from shakedown.common.text import file_name
from shakedown.operations import atomic

FOLDER = "/var/lib/shakedown/before"


@dataclass(frozen=True)
class Step:
    """One thing that rollback does. `kind` says how (UNDO in operations/rollback.py), `target` to what."""

    kind: str
    target: str
    value: str = ""


def remember(setting: str, steps: list[Step], once: bool = True) -> FunctionCommand:
    """Keep what stood there; with `once`, unless an earlier change of the same setting has done so. Needs root, as
    every change does, and so is the command that says it."""
    text = json.dumps({"setting": setting, "restore": [asdict(step) for step in steps]}, sort_keys=True)
    return atomic.command(
        "write",
        path=f"{FOLDER}/{file_name(setting)}.json",
        lines=[text],
        mode="0600",
        folder_mode="0700",
        once=once,
        root=f"changing {setting} needs root: use _sudo=True",
    )
