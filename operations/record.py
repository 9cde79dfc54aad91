"""The way back: what stood there before the first change to a setting."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from pyinfra.api.command import QuoteString, StringCommand

FOLDER = "/var/lib/shakedown/before"


@dataclass(frozen=True)
class Step:
    """One thing that rollback does. `kind` says how (UNDO in operations/rollback.py), `target` to what."""

    kind: str
    target: str
    value: str = ""


def remember(setting: str, steps: list[Step]) -> StringCommand:
    """Keep what stood there, unless an earlier change of the same setting has done so. Needs root, as every change
    does, and so is the command that says it."""
    name = setting.replace("/", "_")
    text = json.dumps({"setting": setting, "restore": [asdict(step) for step in steps]}, sort_keys=True)
    return StringCommand(
        '[ "$(id -u)" = 0 ] ||',
        "{ echo",
        QuoteString(f"changing {setting} needs root: use _sudo=True"),
        ">&2; exit 1; };",
        f"d={FOLDER}; p=$d/{name}.json; t=$p.$$; [ -e \"$p\" ] || {{ umask 077; mkdir -p $d && env printf '%s\\n'",
        QuoteString(text),
        '> "$t" && mv -f "$t" "$p"; } || { rm -f "$t"; echo "$p was not written, so nothing is changed" >&2; exit 1; }',
    )
