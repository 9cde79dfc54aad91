"""Scripts that travel to a node, run here as they run there, by root or by another user, with places of the test's."""

from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from shakedown.node import safe_files
from shakedown.operations.atomic import ASSETS
from shakedown.transport.program import program

NODE = Path(safe_files.__file__).parent
NOBODY = pwd.getpwnam("nobody").pw_uid
PYTHON = "/usr/bin/python3"  # of another user: the virtual environment may stand where he cannot go
HOME = "pwd.getpwuid(os.geteuid()).pw_dir"


def text_of(path: Path, state: Path) -> str:
    """The program, with root's places and everybody's home in a folder of the test's."""
    text = program(path)
    for name in (safe_files.ROOTS_STATE, safe_files.ROOTS_LOCKS, HOME):
        assert repr(name) in text or name in text
        text = text.replace(repr(name), repr(str(state))).replace(name, repr(str(state)))
    return text


def argv(script: str | Path, state: Path, uid: int | None = None, before: str = "", **more: object) -> list[str]:
    """The command that runs a script of node/assets, or of shakedown/node. `more` replaces its constants."""
    text = text_of(ASSETS / script if isinstance(script, str) else script, state)
    for name, value in more.items():
        text, count = re.subn(rf"(?m)^{name} = .*$", f"{name} = {value!r}", text)
        assert count == 1, name
    return ["sh", "-c", f'{before} exec "$@"', "sh", sys.executable if uid is None else PYTHON, "-I", "-S", "-c", text]


def run(
    script: str | Path, document: Any, state: Path, uid: int | None = None, before: str = "", **more: object
) -> subprocess.CompletedProcess[str]:
    """Run it to its end, with its document on standard input, as somebody else where `uid` says so."""
    other = uid if uid is not None and os.geteuid() == 0 else None
    return subprocess.run(
        argv(script, state, uid, before, **more),
        input=json.dumps(document),
        capture_output=True,
        text=True,
        timeout=60,
        user=other,
        group=other,
        extra_groups=None if other is None else [],
    )
