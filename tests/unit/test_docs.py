"""The pages: what is generated is new, links lead somewhere, commands exist, inventories are right."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from shakedown.desired import profiles
from shakedown.desired.layers import HostLayers, Layer
from shakedown.runner.features import resolve
from shakedown.state.findings import Finding, Verdict
from tests.docs import commands, house, links, schemas, shell
from tests.docs.blocks import BLOCKS, ROOT, blocks_of, filled, pages, wanted, written
from tests.json_schema import Draft202012Validator
from tests.slurm_commands import Programs

WANTED = wanted()
PAGES = {str(path.relative_to(ROOT)): path for path in pages()}
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("path", WANTED, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_generated_is_new(path: Path) -> None:
    text = path.read_text("utf-8") if path.is_file() else ""
    assert text == WANTED[path](), "old: run make docs, and read what has changed"


def test_a_command_s_help_is_the_same_whoever_called_it_first() -> None:
    command = commands.every()["judge"]
    wanted = commands.help_of("judge", command)
    command._help_option = None
    command.get_help(click.Context(command))
    assert commands.help_of("judge", command) == wanted and "-h, --help" in wanted


def test_every_block_stands_in_a_page() -> None:
    """One that stands in none is written for nobody."""
    used = [name for path in PAGES.values() for name in blocks_of(path.read_text("utf-8"))]
    assert sorted(used) == sorted(BLOCKS)


def test_an_old_block_is_seen() -> None:
    page = "before\n\n<!-- generated: verdicts -->\n\nsomething else\n\n<!-- end: verdicts -->\nafter\n"
    assert filled(page) != page
    assert filled(filled(page)) == filled(page)
    assert filled(page).startswith("before\n")
    assert filled(page).endswith("\nafter\n")


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    assert links.dead(PAGES[name]) == []


def test_a_dead_link_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `two`\n[a](page.md#one-two) [b](#three) [c](gone.md) [d](http://x.org) [e][f]\n`[g](no)`\n")
    assert links.dead(page) == ["#three", "gone.md", "http://x.org", "[f]"]


@pytest.mark.parametrize("name", PAGES)
def test_commands_that_are_shown_exist(name: str) -> None:
    text = PAGES[name].read_text("utf-8")
    assert {shell.wrong(words): words for words in shell.shown(text) if shell.wrong(words)} == {}


@pytest.mark.parametrize(
    "line",
    [
        "make smoked",
        "make lab-up NODS=2",
        "pyinfra inventories/rack.py deploy/gone.py",
        "pyinfra inventories/rack.py deploy/megatron.py --dryy",
        "shakedown drifft inventories/rack.py",
        "shakedown drift inventories/gone.py",
        "shakedown drift inventories/rack.py --format yaml",
        ".venv/bin/pytest -q tests/unit/test_gone.py",
    ],
)
def test_a_command_that_does_not_exist_is_seen(line: str) -> None:
    (words,) = shell.shown(f"Text.\n\n    {line}    # why\n")
    assert shell.wrong(words)


@pytest.mark.parametrize("name", commands.every())
def test_the_help_of_a_command_has_an_example(name: str) -> None:
    """And one that is right: it is held against the command itself."""
    text = re.sub(r" \\\n\s+", " ", commands.help_of(name, commands.every()[name]))
    examples = [line.strip() for line in text.splitlines() if f"shakedown {name} " in line and "Usage:" not in line]
    assert examples
    for example in examples:
        for words in shell.shown(f"    {re.sub(r'  .*', '', example)}"):
            assert shell.wrong(words) == ""


def test_inventories_that_are_shown_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Programs(tmp_path, monkeypatch)
    slurm.put(
        "scontrol",
        """[ $1 = --json ] && echo "unrecognized option" >&2 && exit 1
for n in 1 2 3 4; do echo "NodeName=node0$n State=IDLE Partitions=mi300x"; done""",
    )
    shown = 0
    for path in PAGES.values():
        for block in _PYTHON.findall(path.read_text("utf-8")):
            tree = ast.parse(block)
            if "shakedown.hosts" not in block or path.name == "extending.md":  # performed in test_extending.py
                continue
            values: dict[str, object] = {}
            exec(compile(tree, str(path), "exec"), values)
            ((hosts, data),) = [each for each in values.values() if isinstance(each, tuple)]
            own = [host if isinstance(host, tuple) else (host, {}) for host in hosts]
            layers = [HostLayers(name, [Layer("group", data), Layer("host", mine)]) for name, mine in own]
            resolve(layers, whole=True, to_train=True)
            shown += 1
    assert shown >= 2


def test_the_readme_is_read_in_five_minutes() -> None:
    text = PAGES["README.md"].read_text("utf-8")
    assert len(text.splitlines()) <= 90
    prose = [line for line in text.splitlines() if not line.startswith("|")]
    assert max(len(line) for line in prose) <= 120


def test_the_readme_names_every_profile() -> None:
    """That every page is in a list of the site, tests/unit/test_site.py holds."""
    text = PAGES["README.md"].read_text("utf-8")
    named = [name for kind in ("gpu", "nic") for name in profiles.names(kind)]
    assert [name for name in named if not re.search(rf"\b{name}\b", text)] == []


def test_a_schema_refuses_what_is_not_of_it() -> None:
    finding = Finding(name="thp", node="node1", verdict=Verdict.OK).model_dump(mode="json")
    validator = Draft202012Validator(schemas.schema(Finding))
    assert not list(validator.iter_errors(finding))
    assert list(validator.iter_errors({**finding, "verdict": "fine"}))
    assert list(validator.iter_errors({**finding, "more": 1}))


def test_the_index_leads_to_each_entry_and_the_readme_to_the_site() -> None:
    """The four entries are for four readers; the README has the same four."""
    index = PAGES["docs/index.md"].read_text("utf-8")
    readme = PAGES["README.md"].read_text("utf-8")
    for entry, page in (("Bring up a rack", "bring-up"), ("A run failed", "failed"), ("Extend", "extending")):
        assert f"**{entry}**" in index and f"({page}.md)" in index and f"(docs/{page}.md)" in readme
    assert "**Operate**" in index and "(docs/reports.md)" in readme


def test_the_verdicts_of_the_readme_are_those_of_today() -> None:
    table = dict(re.findall(r"^\| `(\w+)` \|.*\| (\d) \|$", PAGES["README.md"].read_text("utf-8"), re.M))
    assert table == {verdict.value: str(verdict.exit_code) for verdict in Verdict}


def test_the_picture_of_the_house_shows_each_room_and_no_arrow_that_others_imply() -> None:
    """That it is new, `test_what_is_generated_is_new` holds."""
    edges = house.imports()
    picture = house.house()
    assert {"common", "node", "runner", "cli"} <= set(edges)
    assert [room for room in edges if f">{room}</text>" not in picture] == []
    assert house.arrows({"cli": {"gates", "common"}, "gates": {"common"}, "common": set()}) == {
        ("cli", "gates"),
        ("gates", "common"),
    }


def test_what_people_write_stays_short() -> None:
    """Words outside of what the code or a bench writes. A page that grows pushes another one out."""
    count = {name: len(written(path.read_text("utf-8")).split()) for name, path in PAGES.items()}
    whole = sum(words for name, words in count.items() if name.startswith("docs/"))
    assert whole <= 24_000, count
    assert len((ROOT / "CHANGELOG.md").read_text("utf-8").split()) <= 1_500


def test_completion_as_the_quick_start_has_it() -> None:
    page = PAGES["docs/quickstart.md"].read_text("utf-8")
    (line,) = re.findall(r"^    (eval .*_SHAKEDOWN_COMPLETE.*)$", page, re.M)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    words = 'COMP_WORDS=(shakedown dri) COMP_CWORD=1; _shakedown_completion shakedown; echo "${COMPREPLY[@]}"'
    script = f"{line}\ncomplete -p shakedown\n{words}"
    ran = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert ran.stdout.splitlines()[-1] == "drift", ran.stderr


_NOWHERE = re.compile(r"\b\d{3}_[0-9a-f]{8,}\w*\.txt|FIELD_NOTES|PYINFRA_NOTES|\bdocument 00\d\b", re.IGNORECASE)


def test_nothing_refers_to_what_is_not_here() -> None:
    """Neither notes that nobody else has, nor documents by a name that cannot be looked up."""
    folders = [ROOT / name for name in ("shakedown", "facts", "operations", "deploy", "inventories", "docs")]
    files = [
        path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".toml", ".md", ".json")
    ]
    assert len(files) > 100
    assert [str(path) for path in [*files, *PAGES.values()] if _NOWHERE.search(path.read_text("utf-8"))] == []
