"""Patches: what is rejected is shown, and what cannot travel is refused."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from pyinfra.api.exceptions import OperationValueError

from shakedown.facts import git
from shakedown.facts.git import Checkout, PatchFits, packed
from shakedown.operations import patch
from shakedown.operations.patch import rejected

PATCH = """\
diff --git a/a.py b/a.py
--- a/a.py
+++ b/a.py
@@ -2,3 +2,3 @@ def f():
 two
-three
+3
@@ -40,2 +40,2 @@
-forty
+40
diff --git a/b.py b/b.py
--- a/b.py
+++ b/b.py
@@ -1 +1 @@
-one
+1
"""


def test_only_the_hunks_that_git_names_are_shown() -> None:
    shown = rejected(PATCH, ["error: a.py: patch does not apply", "error: patch failed: a.py:40"])
    assert shown.splitlines() == [
        "error: a.py: patch does not apply",
        "a.py:40",
        "@@ -40,2 +40,2 @@",
        "-forty",
        "+40",
    ]


def test_what_is_no_hunk_of_the_patch_is_told_in_gits_words() -> None:
    assert rejected(PATCH, ["error: corrupt patch at line 7"]) == "error: corrupt patch at line 7"
    assert rejected(PATCH, ["error: patch failed: c.py:1"]) == "error: patch failed: c.py:1"
    assert rejected(PATCH, []) == "git gives no reason"


def test_a_patch_longer_than_a_command_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = random.Random(0).randbytes(200_000).hex()
    with pytest.raises(OperationValueError, match="divide it"):
        packed(noise)
    assert len(packed("+" * 1_000_000)) < 10_000
    monkeypatch.setattr(git, "LONGEST", 3 * len(packed(PATCH)) // 4)
    assert packed(PATCH), "the longest one fits"
    monkeypatch.setattr(git, "LONGEST", git.LONGEST - 1)
    with pytest.raises(OperationValueError, match="divide it"):
        packed(PATCH)


def test_a_commit_that_is_not_a_whole_hash_does_not_reach_the_shell() -> None:
    for commit in ("main", "abc123", "$(reboot)", "F" * 40):
        with pytest.raises(OperationValueError):
            Checkout().command(path="/opt/x", commit=commit)


def test_changes_are_ours_only_when_all_of_them_are(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        return subprocess.run(
            ["git", "-C", tmp_path, *identity, *words], check=True, capture_output=True, text=True
        ).stdout

    def read() -> dict[str, object]:
        command = Checkout().command(path=str(tmp_path), commit="0" * 40)
        return Checkout().process(subprocess.check_output(["sh", "-c", command], text=True).splitlines())

    assert read()["kind"] == "empty"
    git("init", "--quiet")
    assert read()["kind"] == "checkout" and read()["head"] is None
    (tmp_path / "a").write_text("one\n")
    git("add", ".")
    git("commit", "--quiet", "-m", "one")
    assert read()["changes"] == [] and not read()["patched_only"]
    (tmp_path / "a").write_text("two\n")
    digest = subprocess.check_output(f"git -C {tmp_path} diff --binary HEAD | sha256sum", shell=True, text=True)[:64]
    (tmp_path / ".git/shakedown").write_text(f"diff {digest}\npatch abc\n")
    assert read()["patched_only"] and read()["patches"] == ["abc"]
    (tmp_path / "a").write_text("three\n")
    assert read()["changes"] and not read()["patched_only"]


def before(patch: str) -> dict[str, str]:
    """Files that a patch fits: its old lines where it says, and others in between."""
    files: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in patch.splitlines():
        if line.startswith("--- a/"):
            lines = files.setdefault(line[6:], [])
        elif line.startswith("@@"):
            lines += [f"filler {number}" for number in range(len(lines), int(line[4:].split(",")[0]) - 1)]
        elif line[:1] in ("-", " ") and not line.startswith("---"):
            lines.append(line[1:])
    return {name: "\n".join(text) + "\n" for name, text in files.items()}


def test_the_documents_own_patch_fits_what_it_was_made_for_and_nothing_else(tmp_path: Path) -> None:
    document = (Path(__file__).parents[1] / "data/documents/003_patch.txt").read_text()
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)

    def fits() -> list[str]:
        command = PatchFits().command(path=str(tmp_path), patch=document)
        return subprocess.check_output(["sh", "-c", command], text=True).splitlines()

    state, *errors = fits()
    assert state == "rejected" and "requirements.txt: No such file or directory" in rejected(document, errors)
    for name, text in before(document).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert fits() == ["fits"]
    subprocess.run(["git", "-C", tmp_path, "apply", "-"], input=document, text=True, check=True)
    assert fits() == ["applied"]
    (tmp_path / "requirements.txt").write_text("torch\n")
    state, *errors = fits()
    assert state == "rejected"
    shown = rejected(document, errors)
    assert "requirements.txt:1" in shown and "-apex" in shown


@pytest.mark.parametrize(("content", "words"), [(None, "No such file or directory"), (b"\xff", "invalid start byte")])
def test_a_patch_that_cannot_be_read_is_told_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, words: str
) -> None:
    monkeypatch.setattr(patch, "refuse", lambda text: text)
    file = tmp_path / "one.patch"
    if content:
        file.write_bytes(content)
    (refused,) = patch.apply._inner(path="/opt/x", patch_file=str(file))
    assert refused.startswith(f"{file}: ") and words in refused and str(file) not in refused[len(str(file)) :]
