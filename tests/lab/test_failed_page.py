"""docs/failed.md is true: its rack is played, and each command prints what the page shows."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tests.docs.blocks import DOCS
from tests.docs.transcripts import first_wrong, transcripts
from tests.lab.conftest import RackMaker
from tests.lab.failed_page import NODES, perform

CODES = {"run": 1, "report": 1, "show": 0, "judge": 1, "ticket": 0}


def test_the_page_on_a_failed_run_shows_what_the_commands_print(rack: RackMaker, tmp_path: Path) -> None:
    shown = transcripts((DOCS / "failed.md").read_text("utf-8"), "lab transcript")
    with closing(perform(rack(NODES), tmp_path, [command for command, _ in shown])) as performed:
        for (command, lines), (_, code, output) in zip(shown, performed, strict=True):
            assert first_wrong(lines, output) == "", f"$ {command}\n{output}"
            assert code == CODES[command.split()[1]], f"$ {command}\n{output}"
