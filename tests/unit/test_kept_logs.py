"""Logs on the controller: how much came, with its digest, and never more than there is room for."""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from shakedown.common import private
from shakedown.logs.kept_logs import LogFile, LogQuota, names_on_controller
from shakedown.runs import copies


def kept(tmp_path: Path, *chunks: bytes, size: int | None, quota: int = 1 << 20, limit: int = 100):
    log = LogFile("leader.log", tmp_path / "node/leader.log", LogQuota(quota), limit)
    for chunk in chunks:
        log.write(chunk)
    log.size = size
    return log.close()


def test_a_whole_log_has_its_size_and_digest(tmp_path: Path) -> None:
    log = kept(tmp_path, b"one\n", b"two\n", size=8)
    assert (log.size, log.kept, log.incomplete) == (8, 8, "")
    assert log.sha256 == hashlib.sha256(b"one\ntwo\n").hexdigest()
    assert Path(log.path).read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize(
    ("size", "said"), [(9, "8 of 9 bytes"), (7, "8 of 7 bytes"), (None, "8 of an unknown number bytes")]
)
def test_a_log_of_another_size_than_on_the_node_is_not_whole(tmp_path: Path, size: int | None, said: str) -> None:
    assert said in kept(tmp_path, b"one\ntwo\n", size=size).incomplete


@pytest.mark.parametrize(("length", "incomplete"), [(99, False), (100, False), (101, True)])
def test_no_more_of_a_log_is_kept_than_the_limit(tmp_path: Path, length: int, incomplete: bool) -> None:
    log = kept(tmp_path, b"x" * 50, b"x" * (length - 50), b"", size=length)
    assert bool(log.incomplete) is incomplete
    assert log.kept == Path(log.path).stat().st_size == min(length, 100)
    assert ("a log no more than 100" in log.incomplete) is incomplete


def test_nothing_is_kept_behind_a_gap(tmp_path: Path) -> None:
    log = kept(tmp_path, b"x" * 101, b"later", size=106)
    assert Path(log.path).read_bytes() == b"x" * 100


def test_all_logs_of_a_run_share_its_room(tmp_path: Path) -> None:
    """A node that sends without an end leaves the others as much as it takes itself, with all of its logs."""
    quota = LogQuota(24)
    greedy = [LogFile(name, tmp_path / "a" / name, quota) for name in ("leader.log", "more.log")]
    for log in greedy:
        log.write(b"1234567")
        log.size = 7
    honest = LogFile("leader.log", tmp_path / "b" / "leader.log", quota)
    honest.write(b"123456")
    honest.size = 6
    assert greedy[0].close().incomplete == ""
    assert "5 of 7 bytes" in (said := greedy[1].close().incomplete)
    assert "of a run" in said and "of a node half" in said
    assert honest.close().incomplete == ""


def test_after_its_end_nothing_is_written_any_more(tmp_path: Path) -> None:
    log = LogFile("leader.log", tmp_path / "leader.log", LogQuota())
    log.size = 0
    first = log.close()
    log.write(b"late")
    assert log.close() == first
    assert Path(first.path).read_bytes() == b""


def test_a_full_disk_is_told_and_what_was_written_counts(tmp_path: Path) -> None:
    code = """
import resource, signal, sys
from pathlib import Path
from shakedown.logs.kept_logs import LogFile, LogQuota
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (6, 6))
log = LogFile("leader.log", Path(sys.argv[1]), LogQuota())
log.write(b"1234")
log.write(b"5678")
log.write(b"9")
log.size = 9
print(log.close().model_dump_json())
"""
    ran = subprocess.run([sys.executable, "-c", code, tmp_path / "l"], capture_output=True, text=True, check=True)
    assert '"kept":6' in ran.stdout
    assert hashlib.sha256(b"123456").hexdigest() in ran.stdout
    assert "the controller could not write" in ran.stdout
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 6


def test_files_are_private_whatever_the_umask_and_never_another_file(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        private.create(tmp_path / "a/b/file").close()
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b", "a/b/file")]
    assert modes == [0o700, 0o700, 0o600]
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        private.create(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(FileExistsError):
        private.make_folders(tmp_path / "a/b/file")


def test_a_folder_that_another_run_makes_meanwhile_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_dir = Path.is_dir

    def made_behind_its_back(path: Path) -> bool:
        if found := is_dir(path):
            return found
        path.mkdir()
        return False

    monkeypatch.setattr(Path, "is_dir", made_behind_its_back)
    private.create(tmp_path / "a/file").close()
    assert (tmp_path / "a/file").is_file()


def test_a_umask_that_takes_the_owner_s_rights_away_does_not_count(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        private.create(tmp_path / "a/b/file").close()
    finally:
        os.umask(before)
    assert (tmp_path / "a/b").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a/b/file").stat().st_mode & 0o777 == 0o600


def test_names_of_logs_become_files_of_their_node() -> None:
    names = [
        "{run_dir}/logs/perf.csv",
        "perf.csv",
        "./perf.csv",
        "leader.log",
        "../../etc/passwd",
        "x/..",
        "a/Perf.csv",
    ]
    files = names_on_controller([*names, "perf.csv"])
    assert list(files) == names
    assert files["{run_dir}/logs/perf.csv"] == "perf.csv"
    assert files["../../etc/passwd"] == "passwd"
    assert len({file.lower() for file in files.values()} | {"leader.log"}) == len(names) + 1
    assert not any("/" in file or file.startswith(".") for file in files.values())


def test_of_a_log_with_a_report_only_the_report_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node may print a gibibyte beside it, in each job of a burn-in."""
    monkeypatch.setattr(copies, "_CHUNK", 7)
    monkeypatch.setattr(copies, "REPORT_LIMIT", 60)
    lines = [
        b"soak {1}\n",
        b"x\n" * 100,
        b"not a soak {2}\n",
        b"50 %\rsoak {3}\r\n",
        b"trial {4}\n",
        b"\n" * 99,
        b"soak {5}",
    ]
    log = kept(tmp_path, *lines, size=sum(map(len, lines)), limit=1000)
    log = log.model_copy(update={"path": "node/leader.log"})
    assert copies.report_of(tmp_path, log, ("soak ", "trial ")) == ("soak {1}\nsoak {3}\ntrial {4}\nsoak {5}\n", "")
    assert copies.report_of(tmp_path, log, ("trial ",)) == ("trial {4}\n", "")
    monkeypatch.setattr(copies, "REPORT_LIMIT", 20)
    text, lacks = copies.report_of(tmp_path, log, ("soak ", "trial "))
    assert text == "soak {1}\nsoak {3}\n" and "only 20 bytes were read" in lacks
    assert copies.report_of(tmp_path, None, ("soak ",)) == (None, "")
    cut = kept(tmp_path / "cut", b"trial {1}\n", size=99).model_copy(update={"path": "cut/node/leader.log"})
    assert "of 99 bytes" in copies.report_of(tmp_path, cut, ("trial ",))[1], "readings may be missing"
