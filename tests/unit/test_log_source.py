"""Logs as they come: read, or refused in words; never taken for whole where they are not, never without a bound."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from shakedown.cli import main
from shakedown.gates import read_log
from shakedown.logs import source
from shakedown.logs.source import LogSource, NotALog
from shakedown.runs.archive import read as archive_run

TEXT = b"".join(b"a line of a log, number %d\n" % number for number in range(20_000))


def read(path: Path, content: bytes, limit: int = 1 << 30) -> tuple[bytes, str]:
    path.write_bytes(content)
    source = LogSource(path, limit)
    return b"".join(source), source.incomplete


def named(value: object) -> str | None:
    """A name for content, of which some is random: the workers of one run must name their tests alike."""
    return "content" if isinstance(value, bytes) else None


@pytest.mark.parametrize(
    "content",
    [
        TEXT,
        b"\xef\xbb\xbf" + TEXT,
        gzip.compress(TEXT),
        gzip.compress(TEXT[:5000]) + gzip.compress(TEXT[5000:]),
        bz2.compress(TEXT),
        TEXT.decode().encode("utf-16"),
        b"\xfe\xff" + TEXT.decode().encode("utf-16-be"),
        TEXT.decode().encode("utf-32"),
        gzip.compress(TEXT.decode().encode("utf-16")),
    ],
    ids=named,
)
def test_a_log_is_read_in_whatever_it_came(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path / "log", content) == (TEXT, "")


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"one line without an end", b"\xe4\xf6\xfc in latin-1\n", b"\x1b[31mred\x1b[0m\a\n"],
    ids=named,
)
def test_what_may_be_text_is_not_refused(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path / "log", content)[1] == ""


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lzma.compress(TEXT), "xz -dc"),
        (b"\x28\xb5\x2f\xfd" + os.urandom(99), "zstd -dc"),
        (b"PK\x03\x04" + os.urandom(99), "zip"),
        (TEXT.decode().encode("utf-16-le"), "UTF-16"),
        (TEXT.decode().encode("utf-16-be"), "UTF-16"),
        (bytes(4096), "only NUL bytes"),
        (bytes(range(256)) * 64, "binary"),
        (gzip.compress(gzip.compress(os.urandom(100_000))), "binary"),
        (Path(sys.executable).resolve().read_bytes()[:300_000], "binary"),
    ],
    ids=named,
)
def test_what_is_no_text_is_refused_in_words(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(NotALog, match=words) as told:
        read(tmp_path / "log", content)
    assert str(tmp_path / "log") in str(told.value)


@pytest.mark.parametrize(
    ("block", "utf16"),
    [
        (b"\0a\0b\0", True),  # cut in the middle of a character
        (b"\0a\0b\0c\0\n", True),
        (b"a\0b\0c", True),
        (b"a\0b", False),  # a third of it, as a hole may be
        (b"a\0bc\0", True),
        (b"\0\0a\0b", False),
        (b"a" * 63 + b"\0\0" + b"\0a" * 80, True),  # two in a row begin behind the 64th byte or stand across it
        (b"a" * 62 + b"\0\0" + b"\0a" * 80, False),
        (b"\0a\0b" + b"a" * 60 + b"\0" * 64, False),
        (b"\0a\0b" + b"a" * 60 + b"\0" * 61, True),
    ],
)
def test_utf_16_has_as_many_nul_bytes_as_others(block: bytes, utf16: bool) -> None:
    assert source._no_text(block).startswith("looks like UTF-16") == utf16


@pytest.mark.parametrize(("controls", "length", "text"), [(4, 8, True), (5, 250, True), (5, 249, False), (5, 8, False)])
def test_a_text_has_few_control_characters(controls: int, length: int, text: bool) -> None:
    assert (source._no_text(b"\x01" * controls + b"a" * (length - controls)) == "") == text


def test_a_folder_is_told_as_one(tmp_path: Path) -> None:
    with pytest.raises(NotALog, match="is a folder"):
        list(LogSource(tmp_path))


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
@pytest.mark.parametrize("end", [-1, -20, 2000])
def test_packed_data_that_was_cut_is_not_whole(tmp_path: Path, pack, end: int) -> None:
    text, incomplete = read(tmp_path / "log", pack(TEXT)[:end])
    assert TEXT.startswith(text)
    assert "was cut" in incomplete


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
def test_packed_data_that_is_damaged_is_not_whole(tmp_path: Path, pack) -> None:
    packed = bytearray(pack(TEXT))
    packed[len(packed) // 2] ^= 0xFF
    assert (
        "damaged" in read(tmp_path / "log", bytes(packed))[1] or "was cut" in read(tmp_path / "log", bytes(packed))[1]
    )


@pytest.mark.parametrize("more", [b"no gzip", b"\x1f\x8b no gzip either"], ids=named)
def test_something_behind_packed_data_is_told(tmp_path: Path, more: bytes) -> None:
    assert "damaged" in read(tmp_path / "log", gzip.compress(TEXT) + more)[1]


@pytest.mark.parametrize(("limit", "whole"), [(len(TEXT), True), (len(TEXT) - 1, False)])
def test_no_more_is_unpacked_than_the_limit(tmp_path: Path, limit: int, whole: bool) -> None:
    text, incomplete = read(tmp_path / "log", gzip.compress(TEXT), limit)
    assert text == TEXT[:limit]
    assert (incomplete == "") is whole
    assert read(tmp_path / "plain", TEXT, 10) == (TEXT, "")


def test_a_bomb_takes_no_memory(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.gz"
    with gzip.open(bomb, "wb", compresslevel=1) as file:
        for _ in range(256):
            file.write(b"a" * (1 << 20))
    code = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20))
from shakedown.logs.source import LogSource
print(sum(map(len, LogSource(sys.argv[1], 200 << 20))))
"""
    ran = subprocess.run([sys.executable, "-c", code, bomb], capture_output=True, text=True, check=True)
    assert int(ran.stdout) == 200 << 20
    assert resource.getrlimit(resource.RLIMIT_AS)[0] != 600 << 20


def test_standard_input_is_read_once_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(TEXT))))
    source = LogSource("-")
    assert (b"".join(source), source.incomplete, source.name) == (TEXT, "", "standard input")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TEXT)))
    source = LogSource("-", 100)
    assert b"".join(source) == TEXT[:100]
    assert "first 100 bytes of standard input" in source.incomplete


@pytest.mark.parametrize(("length", "hole"), [(15, False), (16, True), (100_000, True)])
def test_a_hole_in_a_log_is_not_whole(tmp_path: Path, length: int, hole: bool) -> None:
    path = tmp_path / "log"
    path.write_bytes(TEXT + bytes(length) + TEXT)
    assert ("NUL" in read_log(path).incomplete) is hole
    halves = [TEXT + bytes(length // 2), bytes(length - length // 2) + TEXT]
    assert ("NUL" in read_log(halves).incomplete) is hole


def test_a_pipe_that_nobody_writes_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setattr(source, "PIPE_S", 0.1)
    with pytest.raises(NotALog, match="nothing was written to it"):
        list(LogSource(pipe))


def test_a_pipe_with_a_writer_is_read_whole(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["sh", "-c", 'sleep 0.3; cat > "$1"', "sh", str(pipe)], stdin=subprocess.PIPE) as writer:
        assert writer.stdin is not None
        threading.Thread(target=lambda: (writer.stdin.write(TEXT), writer.stdin.close())).start()  # type: ignore
        assert b"".join(LogSource(pipe)) == TEXT


@pytest.mark.parametrize("command", ["plan", "drift", "run"])
def test_an_inventory_that_is_a_pipe_is_refused(tmp_path: Path, command: str) -> None:
    os.mkfifo(tmp_path / "rack.py")
    done = CliRunner().invoke(main, [command, str(tmp_path / "rack.py")])
    assert done.exit_code == 2 and "is no file" in done.output


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_an_endless_device_that_holds_no_text_is_refused_at_once(device: str) -> None:
    source = LogSource(device, 1 << 20)
    with pytest.raises(NotALog, match=r"NUL bytes|not text"):
        next(iter(source))


def test_a_file_of_proc_is_read_as_a_device_and_taken_for_no_archive_and_no_inventory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """/proc/kmsg calls itself a regular file, and whoever reads it waits for the next message."""
    opened = os.open
    flags: list[int] = []
    monkeypatch.setattr(os, "open", lambda path, flag, *more: flags.append(flag) or opened(path, flag, *more))
    assert b"".join(LogSource("/proc/version")).startswith(b"Linux")
    assert flags and flags[-1] & os.O_NONBLOCK
    monkeypatch.setattr(archive_run, "is_archive", lambda _: pytest.fail("it was opened"))
    assert not archive_run.is_packed("/proc/version")
    assert CliRunner().invoke(main, ["drift", "/proc/version"]).exit_code == 2


def test_a_file_with_a_hole_is_read_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "sparse.log"
    path.write_bytes(b"some words\n")
    os.truncate(path, 1 << 40)
    source = LogSource(path, limit=1 << 20)
    assert sum(map(len, source)) == 1 << 20 and "only the first" in source.incomplete
