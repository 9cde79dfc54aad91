"""`python -m tests.lab.faults` (make lab-faults): play every fault, print the table, keep docs/reference/faults.md."""

from __future__ import annotations

import datetime
import sys
import tempfile
from pathlib import Path

from tests.lab.faults.play import Fault, Outcome, faults, play
from tests.lab.product import PROJECT

DOCUMENT = PROJECT / "docs/reference/faults.md"
HEAD = """# What is said when something is wrong

Played on {day} by `make lab-faults`, each fault on a fresh rack of two SSH nodes; tests/lab/faults/table.toml says how
it is made and what has to be said. Left behind is what is new or changed on the nodes afterwards, processes and files,
but for the probe's cached bundle. An exit code below zero is the signal that ended the command.

| fault | how it is made | what the tool said | exit code | left behind |
|---|---|---|---|---|
"""
WIDTH = 240
INDENT = "\n" + " " * 12


def right(fault: Fault, outcome: Outcome) -> bool:
    """Whether a fault came to what the table asks for."""
    said = all(words in outcome.said for words in fault.says)
    return said and outcome.code in fault.codes and not strange(fault, outcome)


def strange(fault: Fault, outcome: Outcome) -> list[str]:
    """What was left behind although the table does not name it."""
    return [thing for thing in outcome.left if not any(known in thing for known in fault.left)]


def row(fault: Fault, outcome: Outcome) -> str:
    """One row of the document's table."""
    cells = [fault.name, fault.how, f"`{outcome.line(fault)[:WIDTH].replace('`', '')}`", str(outcome.code)]
    cells.append(", ".join(outcome.left) or "nothing")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def main() -> int:
    table, wrong = HEAD.format(day=datetime.date.today().isoformat()), 0
    for fault in faults():
        with tempfile.TemporaryDirectory() as folder:
            outcome = play(fault, Path(folder))
        table += row(fault, outcome)
        verdict = "ok   " if right(fault, outcome) else "WRONG"
        print(f"{verdict} {outcome.code:4}  {fault.name}", f"said: {outcome.line(fault)[:WIDTH]}", sep=INDENT)
        print("", f"left: {', '.join(outcome.left) or 'nothing'}", sep=INDENT.lstrip("\n"), flush=True)
        wrong += verdict == "WRONG"
    if not wrong:
        DOCUMENT.write_text(table)
    print(
        f"{wrong} of {len(faults())} faults came to something else" if wrong else f"all as the table says: {DOCUMENT}"
    )
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
