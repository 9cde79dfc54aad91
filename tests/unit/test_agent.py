"""The agent's program by itself, as a timer runs it: what it leaves where, and in whose way it does not go."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shakedown.agent.compile import compiled, text
from shakedown.common.prometheus_names import LABELS, NAMES
from shakedown.desired.models import DesiredState
from shakedown.node import safe_files
from shakedown.node.agent.run import BUSY, as_login
from shakedown.node.tree import Tree
from shakedown.state.node import Account
from tests.agents import PYTHON, unpacked
from tests.sent_scripts import NOBODY
from tests.states import desired

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be attacked by another user")
ACCOUNT = Account(user="root", home="/root", groups=["root"], at_login=["root"], members={})
HEALTH = Path(safe_files.__file__).parent / "assets" / "shakedown-health"


class Node:
    """A place where the agent is, and runs."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.program, self.folder = program, folder
        self.config, self.state = folder / "agent.json", folder / "state"
        self.textfile = folder / "textfile"
        self.textfile.mkdir(mode=0o755)
        self.compile()

    def compile(self, **agent: Any) -> None:
        wanted = self.wanted(agent={"textfile": str(self.textfile), **agent})
        self.config.write_text(text(compiled("node01", wanted, ACCOUNT, "f" * 64, "rack.py")))
        self.config.chmod(0o600)

    def wanted(self, **more: Any) -> DesiredState:
        return desired("cpu", None, tuning={"cmdline": ["no-such"]}, **more)

    def check(self, *words: str) -> subprocess.CompletedProcess[str]:
        said = [
            PYTHON,
            "-I",
            "-S",
            str(self.program / "run.py"),
            "--config",
            str(self.config),
            "--state",
            str(self.state),
        ]
        return subprocess.run([*said, *words], capture_output=True, text=True, timeout=120)

    def told(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.state / "verdict.json").read_text())
        return found


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(tmp_path_factory.mktemp("program"))


@pytest.fixture
def node(program: Path, tmp_path: Path) -> Node:
    return Node(program, tmp_path)


def test_a_check_leaves_its_verdict_in_every_form(node: Node) -> None:
    done = node.check()
    assert done.returncode == 0 and not done.stderr, done.stderr
    told = node.told()
    assert told["node"] == "node01" and told["verdict"] in ("fail", "unknown") and told["program"] == "f" * 64
    found = {each["name"]: each for each in told["findings"]}
    assert found["cmdline"]["verdict"] in ("fail", "drift", "unknown") and found["gpu_count"]["verdict"]
    assert sum(told["counts"].values()) == len(found) and told["cpu_s"] > 0
    lines = done.stdout.splitlines()
    assert len(lines) == 1 + sum(each["verdict"] != "ok" for each in found.values())
    assert any(": cmdline: " in line and line[0] == "<" for line in lines)

    families = {
        each.name: each for each in text_string_to_metric_families((node.textfile / "shakedown_agent.prom").read_text())
    }
    assert set(families) <= set(NAMES) and families["shakedown_findings"].documentation == NAMES["shakedown_findings"]
    assert {tuple(sample.labels) for sample in families["shakedown_findings"].samples} == {LABELS["shakedown_findings"]}
    bad = {sample.labels["finding"] for sample in families["shakedown_finding_not_ok"].samples}
    assert bad == {name for name, each in found.items() if each["verdict"] != "ok"}
    every = [sample.labels for family in families.values() for sample in family.samples]
    assert {(labels["inventory"], labels["source"]) for labels in every} == {("rack.py", "agent")}
    suspects = {sample.labels["cause"] for sample in families["shakedown_suspect"].samples}
    assert suspects == {name for name, each in found.items() if each["verdict"] == "fail"}
    remedies = {each.labels["cause"]: each.labels["remedy"] for each in families["shakedown_cause_info"].samples}
    assert set(remedies) == bad - {name for name, each in found.items() if each["verdict"] == "warn"}
    assert remedies["cmdline"] == found["cmdline"]["remedy"]["text"][:200]
    assert (node.textfile / "shakedown_agent.prom").stat().st_mode & 0o777 == 0o644

    modes = {path.name: path.stat().st_mode & 0o777 for path in node.state.iterdir()}
    assert modes == {"verdict": 0o644, "verdict.json": 0o600}, "findings quote what root alone may read; nothing beside"
    line = (node.state / "verdict").read_text()
    assert line.split()[0] == told["verdict"] and len(line.split(" ", 3)[3].strip().encode()) <= 80


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema_version": 99}', '{"schema_version": 1}', "{} {}"])
def test_a_check_that_cannot_be_made_is_unknown(node: Node, content: str) -> None:
    node.config.write_text(content)
    assert node.check().returncode == 1
    assert node.told()["verdict"] == "unknown" and node.told()["why"]
    assert (node.state / "verdict").read_text().startswith("unknown ")


@needs_root
def test_what_another_user_could_have_compiled_is_not_read(node: Node) -> None:
    os.chown(node.config, NOBODY, NOBODY)
    assert node.check().returncode == 1
    assert node.told()["verdict"] == "unknown" and "nobody" in node.told()["why"]


def test_two_checks_do_not_run_at_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("ROOTS_STATE", "ROOTS_LOCKS"):
        monkeypatch.setattr(safe_files, place, str(node.program / "var"))
    monkeypatch.setattr(safe_files, "state_path", lambda: str(node.program / ".local/state/shakedown"))
    held = safe_files.locks().lock("agent.lock", 0)
    assert node.check().returncode == BUSY and not node.state.exists()
    os.close(held)
    assert node.check().returncode == 0


@pytest.mark.parametrize(
    ("mode", "owner", "group", "opens"),
    [
        ("0660", "root", "render", True),
        ("0660", "root", "root", False),
        ("0640", "root", "render", False),
        ("0666", "root", "root", True),
        ("0664", "root", "root", False),
        ("0606", "root", "render", False),  # the group decides
        ("0066", "ada", "render", False),  # the owner decides
        ("0600", "ada", "ada", True),
    ],
)
def test_who_could_open_a_device_file_in_a_new_session(
    tmp_path: Path, mode: str, owner: str, group: str, opens: bool
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nada:x:1000:44::/home/ada:/bin/sh\n")
    (tmp_path / "etc/group").write_text("render:x:109:bob,ada\nusers:x:44:\nother:x:50:bob,adam\n")

    def session(user: str) -> dict[str, Any]:
        kfd = {"mode": mode, "owner": owner, "group": group, "openable": "as root"}
        devices = {"kfd": kfd, "dri": [], "infiniband": {"unreadable": "missing", "detail": ""}}
        state: dict[str, Any] = {"account": {}, "limits": {}, "devices": devices}
        as_login(Tree(str(tmp_path)), state, user)
        return state

    state = session("ada")
    assert state["account"]["at_login"] == ["render", "users"] and state["account"]["home"] == "/home/ada"
    assert state["devices"]["kfd"]["openable"] is opens
    assert session("root")["devices"]["kfd"]["openable"] == "as root", "as it was read"


def test_no_secret_is_compiled_for_a_node() -> None:
    smoke = {"recipe": "gpt-small", "environment": {"HF_TOKEN": "hf_sesame_open"}}
    wanted = desired("cpu", None, smoke=smoke)
    assert "hf_sesame_open" not in text(compiled("node01", wanted, ACCOUNT, "f" * 64))


@needs_root
def test_a_verdict_that_cannot_be_left_is_no_check(node: Node) -> None:
    node.state.mkdir()
    os.chown(node.state, NOBODY, NOBODY)
    done = node.check()
    assert done.returncode == 1 and "no verdict file: " in done.stdout and not list(node.state.iterdir())


LAID: dict[str, Callable[[Path, Path], Any]] = {
    "a folder of theirs": lambda folder, precious: os.chown(folder, NOBODY, NOBODY),
    "a folder for everybody": lambda folder, precious: folder.chmod(0o1777),
    "a link for the folder": lambda folder, precious: (folder.rmdir(), folder.symlink_to("/nowhere")),
}


@needs_root
@pytest.mark.parametrize("what", LAID)
def test_no_metrics_where_another_user_rules(node: Node, what: str) -> None:
    precious = node.folder / "precious"
    precious.write_text("root's")
    LAID[what](node.textfile, precious)
    done = node.check()
    assert done.returncode == 0 and "no metrics" in done.stdout
    assert node.told()["not_told"] and not (node.textfile / "shakedown_agent.prom").exists()


@needs_root
def test_a_link_in_the_place_of_a_file_is_replaced_and_never_followed(node: Node) -> None:
    precious = node.folder / "precious"
    precious.write_text("root's")
    (node.textfile / "shakedown_agent.prom").symlink_to(precious)
    node.state.mkdir()
    (node.state / "verdict").symlink_to(precious)
    assert node.check().returncode == 0
    assert precious.read_text() == "root's" and not (node.state / "verdict").is_symlink()


def ask(folder: Path, *words: str, at: str = "/var/lib/shakedown") -> tuple[int, str]:
    """What the command says whose answer is a file's; its own folder is the test's."""
    script = HEALTH.read_text()
    assert f"folder={at}\n" in script
    script = script.replace(f"folder={at}", f"folder={folder}").replace("0:", f"{os.geteuid()}:")
    done = subprocess.run(["sh", "-c", script, "sh", *words], capture_output=True, text=True, timeout=60)
    assert not done.stderr and len(done.stdout.encode()) <= 81 and done.stdout.count("\n") == 1
    return done.returncode, done.stdout.strip()


@pytest.mark.parametrize(
    ("line", "code", "with_fail", "words"),
    [
        ("ok {now} 1800 shakedown: ok, 5 findings", 0, 0, "ok, 5"),
        ("drift {now} 1800 shakedown: 1 drift: numa_balancing", 1, 0, "numa_balancing"),
        ("fail {now} 1800 shakedown: 1 fail: gpu_count", 1, 1, "gpu_count"),
        ("unknown {now} 1800 shakedown: unknown: no config", 2, 2, "no config"),
        ("ok {old} 1800 shakedown: ok, 5 findings", 2, 2, "s old"),
        ("ok {later} 1800 shakedown: ok, 5 findings", 2, 2, "future"),
        ("ok soon 1800 shakedown: ok", 2, 2, "no sense"),
        ("ok {now}", 2, 2, "no sense"),
        ("", 2, 2, "cannot be read"),
        ("\x00\x01", 2, 2, "no sense"),
        ("fine {now} 1800 shakedown: fine", 2, 2, "fine"),
        ("ok {now} 1800 " + "x" * 500, 0, 0, "xxx"),
    ],
)
def test_the_command_answers_from_the_file(tmp_path: Path, line: str, code: int, with_fail: int, words: str) -> None:
    now = int(time.time())
    line = line.format(now=now, old=now - 4000, later=now + 4000)
    (tmp_path / "verdict").write_text(line + "\n" if line else "")
    exit_code, answer = ask(tmp_path)
    assert exit_code == code and words in answer
    assert ask(tmp_path, "--fail")[0] == with_fail


def test_no_verdict_and_a_wrong_word_are_unknown(tmp_path: Path) -> None:
    assert ask(tmp_path)[0] == 2 and ask(tmp_path / "none")[0] == 2
    (tmp_path / "verdict").write_text(f"ok {int(time.time())} 1800 shakedown: ok\n")
    assert ask(tmp_path)[0] == 0 and ask(tmp_path, "--all")[0] == 2


@pytest.mark.parametrize("how", ["folder", "file", "file's group", "owner", "link"])
def test_a_verdict_that_others_may_write_is_none(tmp_path: Path, how: str) -> None:
    if how == "owner" and os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    file = tmp_path / "verdict"
    file.write_text(f"ok {int(time.time())} 1800 shakedown: ok\n")
    if how == "owner":
        os.chown(file, NOBODY, NOBODY)
    elif how == "link":
        file.rename(tmp_path / "other")
        file.symlink_to("other")
    else:
        {"folder": tmp_path}.get(how, file).chmod({"folder": 0o1777, "file": 0o646}.get(how, 0o664))
    assert ask(tmp_path) == (2, "shakedown: unknown: others than root may write the verdict")
