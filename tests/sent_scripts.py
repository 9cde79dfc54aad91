"""Scripts that travel to a node, run here as they run there, by root or by another user, with places of the test's."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

from operations.scripts import ASSETS
from shakedown.node import safe_files
from shakedown.sent import program

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


def run(
    script: str | Path, document: Any, state: Path, uid: int | None = None, before: str = "", timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a script of operations/assets, or of shakedown/node, with its document on standard input."""
    text = text_of(ASSETS / script if isinstance(script, str) else script, state)
    return subprocess.run(
        ["sh", "-c", f'{before} exec "$@"', "sh", sys.executable if uid is None else PYTHON, "-I", "-S", "-c", text],
        input=json.dumps(document),
        capture_output=True,
        text=True,
        timeout=timeout,
        user=uid if uid is not None and os.geteuid() == 0 else None,
        extra_groups=[] if uid is not None and os.geteuid() == 0 else None,
        group=uid if uid is not None and os.geteuid() == 0 else None,
    )
