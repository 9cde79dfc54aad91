"""A command whose output nobody reads any more does its work, and ends with the exit code that it has otherwise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

COMMAND = "import sys; from shakedown.cli import main; sys.argv[0] = 'shakedown'; main()"


def test_a_reader_that_goes_changes_no_exit_code(tmp_path: Path) -> None:
    site = tmp_path / "site.py"
    site.write_text("r = (['@local'], {'gpu': 'cpu'})\n")
    log = tmp_path / "train.log"
    log.write_text("no iteration\n")
    for arguments, code in ((["show", site, "@local"], 0), (["judge", log], 4)):
        began = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
        )
        assert began.stdout is not None and began.stderr is not None
        began.stdout.close()
        began.stderr.close()
        assert began.wait(60) == code


def test_ctrl_c_in_a_command_that_needs_no_node_is_no_failure(tmp_path: Path) -> None:
    begun = "import click, sys\nfrom shakedown.cli import main\n"
    stopped = "@main.command()\ndef wait():\n    raise KeyboardInterrupt\n"
    stopped += "main.resolve_command = lambda *_: ('wait', wait, [])\nmain()\n"
    done = subprocess.run([sys.executable, "-c", begun + stopped, "wait"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "shakedown: interrupted\n")
