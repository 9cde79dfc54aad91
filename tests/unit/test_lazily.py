"""Modules that are loaded when they are used."""

from __future__ import annotations

import subprocess
import sys

WORK = """
import sys
from shakedown.runner.lazily import lazily
lazily("invoke")
lazily("no_such_module")
import invoke
assert "invoke.config" not in sys.modules, "not yet"
assert callable(invoke.run) and invoke.UnexpectedExit.__mro__
assert "invoke.config" in sys.modules
import invoke.runners
assert invoke.runners.Local and "no_such_module" not in sys.modules
import paramiko.config
assert paramiko.config.invoke.run is invoke.run
"""


def test_a_module_is_loaded_by_the_first_who_asks_for_something_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
