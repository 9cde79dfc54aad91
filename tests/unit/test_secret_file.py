"""A file with a secret in it: for its owner alone, one line, and told apart in words that do not hold it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from shakedown.common.secret_file import LIMIT, SecretError, read_secret
from shakedown.desired.layers import HostLayers, Layer
from shakedown.desired.problems import DesiredStateError
from shakedown.runner.features import resolve

BENCHMARK = {"mode": "pretrain", "model": "Llama-3.1-70B", "precision": "BF16", "image": "pt", "commit": "1" * 40}
NOBODY = pwd.getpwnam("nobody").pw_uid


def secret(path: Path, content: bytes = b"hf_sesame\n", mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("content", [b"hf_sesame", b"hf_sesame\n", b"hf_sesame\r\n"])
def test_the_one_line_of_a_file_is_the_secret(tmp_path: Path, content: bytes) -> None:
    assert read_secret(secret(tmp_path / "token", content)) == "hf_sesame"


def test_the_home_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    secret(tmp_path / "token")
    assert read_secret("~/token") == "hf_sesame"


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o644, 0o660, 0o602, 0o620, 0o601, 0o777])
def test_a_file_that_others_can_open_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(SecretError, match="chmod 600"):
        read_secret(secret(tmp_path / "token", mode=mode))


def test_a_long_token_is_one(tmp_path: Path) -> None:
    assert len(read_secret(secret(tmp_path / "token", b"a" * LIMIT))) == LIMIT


CONTENTS = {
    "empty": b"",
    "blank": b" \n",
    "two lines": b"one\ntwo\n",
    "a carriage return": b"one\rtwo",
    "an escape": b"a\x1b[2Jb",
    "a zero": b"a\0b",
    "no text": b"\xff\xfe",
    "a mark of its encoding": b"\xef\xbb\xbfhf_sesame",
    "too much": b"a" * (LIMIT + 1),
}


@pytest.mark.parametrize("what", sorted(CONTENTS))
def test_what_is_not_one_line_is_refused_and_not_shown(tmp_path: Path, what: str) -> None:
    with pytest.raises(SecretError) as told:
        read_secret(secret(tmp_path / "token", CONTENTS[what]))
    assert str(tmp_path / "token") in str(told.value) and "sesame" not in str(told.value)


NO_FILES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: None,
    "a folder": lambda path: path.mkdir(),
    "a FIFO": os.mkfifo,
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize("what", sorted(NO_FILES))
def test_what_is_no_file_is_refused_and_does_not_hang(tmp_path: Path, what: str) -> None:
    NO_FILES[what](tmp_path / "token")
    with pytest.raises(SecretError):
        read_secret(tmp_path / "token")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's files")
def test_another_user_s_file_or_link_is_refused(tmp_path: Path) -> None:
    theirs = secret(tmp_path / "token")
    os.chown(theirs, NOBODY, NOBODY)
    with pytest.raises(SecretError, match="belongs to nobody"):
        read_secret(theirs)
    secret(tmp_path / "mine")
    (tmp_path / "link").symlink_to("mine")
    assert read_secret(tmp_path / "link") == "hf_sesame"
    os.lchown(tmp_path / "link", NOBODY, NOBODY)
    with pytest.raises(SecretError, match="belongs to nobody"):
        read_secret(tmp_path / "link")


ASKING: dict[str, dict[str, object]] = {
    "smoke.hf_token_file": {"smoke": {"recipe": "small-gpt", "hf_token_file": "FILE"}},
    "images.a.password_file": {"images": {"a": {"reference": "r/x:1", "username": "me", "password_file": "FILE"}}},
    "benchmark.hf_token_file": {
        "images": {"pt": {"reference": "r/x:1"}},
        "benchmark": {**BENCHMARK, "hf_token_file": "FILE"},
    },
}


@pytest.mark.parametrize("path", sorted(ASKING))
def test_it_is_told_before_the_first_connection(tmp_path: Path, path: str) -> None:
    file = secret(tmp_path / "token", mode=0o644)

    def filled(value: object) -> object:
        if isinstance(value, dict):
            return {key: filled(each) for key, each in value.items()}
        return str(file) if value == "FILE" else value

    with pytest.raises(DesiredStateError) as told:
        resolve([HostLayers("n1", [Layer("all", {"gpu": "cpu", **filled(ASKING[path])})])])  # type: ignore[dict-item]
    assert path in str(told.value) and "chmod 600" in str(told.value)
