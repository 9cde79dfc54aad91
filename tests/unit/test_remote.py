"""A node's answers are input: bounded, typed, cleaned; one that is anything else is no answer of that node."""

from __future__ import annotations

import base64
import json
import os
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from shakedown.jobs.answers import Digest, NoAnswer, Refused
from shakedown.jobs.remote import Node
from shakedown.node.launcher.commands import FETCH_LIMIT
from tests.nodes import LocalNodes, launch_plan, until

PLAN = launch_plan({"n": ["true"]})
PREPARED = {"python": "/usr/bin/python3", "run_dir": "/root/.cache/shakedown/runs/r", "leftovers": {}}


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


def node(*lines: str) -> Node:
    """A node that has been prepared and then answers with these lines."""
    answers = [[json.dumps(PREPARED)], list(lines)]

    def remote(name: str, argv: list[str], stdin: str | None, timeout: float) -> tuple[bool, list[str], list[str]]:
        return True, answers.pop(0), []

    made = Node(PLAN, PLAN.nodes[0], remote, 5)
    made.prepare({}, 30, 1)
    return made


@pytest.mark.parametrize(("runtime", "environment"), [("process", {"NCCL_DEBUG": "INFO"}), ("container", {})])
def test_a_container_has_its_variables_from_its_file_alone(runtime: str, environment: dict[str, str]) -> None:
    """The engine's client would take some of them for its own."""
    plan = launch_plan({"n": ["true"]}, environment={"NCCL_DEBUG": "INFO"}, runtime=runtime)
    asked: list[str] = []

    def remote(name: str, argv: list[str], stdin: str | None, timeout: float) -> tuple[bool, list[str], list[str]]:
        asked.append(stdin or "")
        return True, [json.dumps(PREPARED)], []

    Node(plan, plan.nodes[0], remote, 5).prepare({}, 30, 1)
    assert json.loads(asked[0].splitlines()[1])["job"]["environment"] == environment


def polled(begin: int = 0, /, **answer: Any) -> Any:
    sound = {"watchdog": True, "state": "running", "data": "", "offset": begin, "size": begin}
    return node(json.dumps(sound | answer)).poll(begin)


def test_a_poll() -> None:
    status = polled(3, data=packed(b"abc"), offset=6, size=9, marks=[[6, 0.5]])
    assert (status.log, status.offset, status.size, status.marks) == (b"abc", 6, 9, [(6, 0.5)])


@pytest.mark.parametrize(
    "wrong",
    [
        {"data": packed(b"abc"), "offset": 2, "size": 9},  # goes back
        {"data": packed(b"abc"), "offset": 4, "size": 9},
        {"data": packed(b"abc"), "offset": 3, "size": 2},
        {"offset": -1},
        {"size": -1},
        {"size": 1 << 63},
        {"offset": "x"},
        {"data": packed(bytes(FETCH_LIMIT + 1)), "offset": FETCH_LIMIT + 1, "size": FETCH_LIMIT + 1},
        {"data": packed(bytes(20 << 20)), "offset": 20 << 20, "size": 20 << 20},
        {"data": packed(b"abc" * 1000)[:-8], "offset": 3000, "size": 3000},
        {"data": "!!!"},
        {"data": base64.b64encode(b"no zlib").decode()},
        {"data": [1]},
        {"data": 7},
        {"state": "fine"},
        {"state": ["ready"]},
        {"exit_code": 1 << 40},
        {"exit_code": "no"},
        {"started_ago_s": -1},
        {"started_ago_s": 1e300},
        {"exited_ago_s": float("nan")},
        {"exited_ago_s": float("inf")},
        {"marks": [[1, 1.0]] * 20_001},
        {"marks": [[1, "x"]]},
        {"marks": [1]},
        {"survivors": "all"},
        {"watchdog": None},
        {"disk_free_bytes": -5},
    ],
)
def test_what_the_launcher_does_not_answer_is_no_answer(wrong: dict[str, Any]) -> None:
    with pytest.raises(NoAnswer):
        polled(**wrong)


def test_a_shared_file_system_may_be_large() -> None:
    assert polled(disk_free_bytes=100 << 50).disk_free_bytes == 100 << 50


def test_as_much_as_was_asked_for_is_taken() -> None:
    data = os.urandom(FETCH_LIMIT)
    status = polled(data=packed(data), offset=len(data), size=len(data), marks=[[1, 1.0]] * 20_000)
    assert status.log == data


@pytest.mark.parametrize(
    "lines", [[], ["[" * 50_000], ["[]"], ["null"], ["7"], ['{"watchdog": '], ['{"a": "%s"}' % ("x" * (9 << 20))]]
)
def test_lines_that_are_no_document_are_no_answer(lines: list[str]) -> None:
    with pytest.raises(NoAnswer):
        node(*lines).poll(0)


def test_texts_are_cleaned_and_bounded() -> None:
    evil = "\x1b]0;title\x07\x1b[2Jred\x00" + "x" * 5000
    status = polled(
        ending=evil, setup_error=evil, survivors=[evil] * 1000, running_at_end=[evil], cleanup_errors=[evil + "\nline"]
    )
    texts = [status.ending, status.setup_error, *status.survivors, *status.running_at_end, *status.cleanup_errors]
    assert all(text and "\x1b" not in text and "\x00" not in text and len(text) <= 4000 for text in texts)
    assert len(status.survivors) == 200
    with pytest.raises(NoAnswer) as no_answer:
        node(evil).poll(0)
    assert "\x1b" not in str(no_answer.value) and len(str(no_answer.value)) <= 1000
    with pytest.raises(Refused) as refused:
        node(json.dumps({"error": evil, "kind": evil})).poll(0)
    assert refused.value.kind == "refused"
    assert "\x1b" not in str(refused.value) and len(str(refused.value)) <= 1000


@pytest.mark.parametrize(
    "wrong",
    [{"run_dir": "relative"}, {"python": 7}, {"run_dir": "/x\ny"}, {"leftovers": []}, {"leftovers": {"kept": 1}}],
)
def test_an_answer_to_prepare_is_typed(wrong: dict[str, Any]) -> None:
    answer = json.dumps(PREPARED | wrong)
    made = Node(PLAN, PLAN.nodes[0], lambda *_: (True, [answer], []), 5)
    with pytest.raises(NoAnswer):
        made.prepare({}, 30, 1)
    assert made.prepared and not made.confirmed, "it may be busy all the same"


def test_a_refusal_to_prepare_leaves_nothing_there() -> None:
    made = Node(PLAN, PLAN.nodes[0], lambda *_: (True, ['{"error": "no", "kind": "busy"}'], []), 5)
    with pytest.raises(Refused):
        made.prepare({}, 30, 1)
    assert not made.prepared


def test_fetch_digest_and_remove_are_typed() -> None:
    piece = node(json.dumps({"data": packed(b"abc"), "offset": 5, "size": 5})).fetch("x", 2)
    assert (piece.data, piece.offset, piece.size) == (b"abc", 5, 5)
    assert node(json.dumps({"sha256": None, "size": 3})).digest("x", 3) == Digest(size=3, sha256=None)
    for wrong in (
        {"sha256": None, "size": 3, "signed": "x"},
        {"sha256": "x" * 64, "size": 3},
        {"sha256": None, "size": -1},
        {"sha256": None},
    ):
        with pytest.raises(NoAnswer):
            node(json.dumps(wrong)).digest("x", 3)
    with pytest.raises(Refused, match="gone") as missing:
        node(json.dumps({"missing": "gone\x1b[2J"})).fetch("x", 0)
    assert missing.value.kind == "missing" and "\x1b" not in str(missing.value)
    with pytest.raises(NoAnswer):
        node(json.dumps({"left": "x"})).remove()


# -- what lies where the connection begins --------------------------------------------------------------------------


def test_no_module_of_the_current_folder_of_the_user_or_of_a_variable_is_imported(tmp_path: Path) -> None:
    nodes = LocalNodes(tmp_path / "nodes")
    evil = tmp_path / "evil"
    home = nodes.home("n")
    major = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    places = [evil, home / ".local/lib" / major / "site-packages", home]
    for folder in places:
        folder.mkdir(parents=True, exist_ok=True)
        for module in ("json", "types", "zlib", "node", "launcher", "sitecustomize", "usercustomize", "argparse"):
            (folder / f"{module}.py").write_text(f"open({str(tmp_path / 'was_run')!r}, 'a').write(__file__)")
    nodes.environment = {"PYTHONPATH": str(evil), "PYTHONSTARTUP": str(evil / "json.py"), "PYTHONHOME": ""}
    for nodes.cwd in (evil, home):
        made = Node(PLAN, PLAN.nodes[0], nodes, 5)
        made.prepare({}, 30, 1)
        until(lambda: made.poll(0).state == "ready")  # noqa: B023
        made.stop("enough")
        until(lambda: made.poll(0).over)  # noqa: B023
        made.remove()
    assert not (tmp_path / "was_run").exists()


def test_the_launcher_finds_the_first_python_of_a_node_that_is_new_enough(tmp_path: Path) -> None:
    """As where the distribution's python3 is 3.6 and a newer one stands beside it."""
    old, asked = tmp_path / "bin" / "python3", tmp_path / "asked"
    old.parent.mkdir()
    as_old = "import sys; sys.version_info = (3, 6, 8); exec(sys.argv[1])"
    old.write_text(f"#!/bin/sh\necho asked >> {asked}\nexec {sys.executable} -I -S -c '{as_old}' \"$4\"\n")
    old.chmod(0o755)
    nodes = LocalNodes(tmp_path / "nodes")
    nodes.environment["PATH"] = f"{old.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    made = Node(PLAN, PLAN.nodes[0], nodes, 30)
    with pytest.raises(Refused) as refused:
        made.stop("it never began")
    assert refused.value.kind == "absent"
    assert asked.read_text() == "asked\n", "it was asked for its version, and no more"
    (word,) = [word for word in nodes.argv[0] if "for python in" in word]
    assert "\n" not in word, "csh carries no newline"


def test_a_node_without_a_python_says_so(tmp_path: Path) -> None:
    nodes = LocalNodes(tmp_path)
    made = Node(PLAN, PLAN.nodes[0], lambda name, argv, stdin, limit: nodes(name, _nothing(argv), stdin, limit), 30)
    with pytest.raises(NoAnswer, match=r"no python3 of version 3\.8 or newer"):
        made.stop("it never began")


def _nothing(argv: list[str]) -> list[str]:
    """The same command on a node that has none of the interpreters."""
    start, end = argv[2].index("for python in ") + len("for python in "), argv[2].index("; do")
    return [*argv[:2], argv[2][:start] + "no-such-python" + argv[2][end:]]
