"""Which folders and files on a node may be walked, opened and locked, on folders of this machine."""

from __future__ import annotations

import io
import os
import pwd
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shakedown.node import safe_files
from shakedown.node.safe_files import LINKS, Busy, Folder, Unsafe, sound, walk

OTHERS = "so others could redirect what"
A_LINK = "is a link that another user could have made"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Folders that are open to this user alone, to all, and to all but for what others own; links to the first."""
    for name, mode in {"own": 0o755, "open": 0o777, "sticky": 0o1777}.items():
        (tmp_path / name / "inner").mkdir(parents=True)
        (tmp_path / name / "inner").chmod(0o755)
        (tmp_path / name / "link").symlink_to("../own")
        (tmp_path / name).chmod(mode)
    (tmp_path / "own/up").symlink_to("./../own/inner/../../sticky")
    (tmp_path / "own/round").symlink_to("round")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "walked", "strictly"),
    [
        ("own", "", ""),
        ("own/inner/../inner", "", ""),
        ("own/link/inner", "", ""),
        ("own/up/inner", "", ""),
        ("own/up", OTHERS, OTHERS),
        ("open", OTHERS, OTHERS),
        ("open/inner", OTHERS, OTHERS),
        ("open/link", A_LINK, A_LINK),
        ("sticky", OTHERS, OTHERS),
        ("sticky/inner", "", ""),
        ("sticky/link", A_LINK, A_LINK),
        ("own/absent", "no such folder", "no such folder"),
        ("own/round", "too many links", "too many links"),
    ],
)
def test_a_walk_says_where_another_user_could_redirect_it(place: Path, path: str, walked: str, strictly: str) -> None:
    def said(of: Callable[[str], Folder]) -> str:
        try:
            folder = of(f"{place}/{path}")
        except (Unsafe, OSError) as error:
            return str(error)
        assert os.fstat(folder.fd).st_ino == (place / path).stat().st_ino
        assert folder.path == os.path.realpath(place / path)
        return folder.problem

    found = said(walk), said(sound)
    assert [wanted in said for said, wanted in zip(found, (walked, strictly), strict=True)] == [True, True]
    assert [bool(each) for each in found] == [bool(walked), bool(strictly)]


def test_a_sticky_folder_will_do_for_callers_that_make_their_own_in_it(place: Path) -> None:
    assert sound(f"{place}/sticky", or_sticky=True).problem and not sound(f"{place}/own", or_sticky=True).problem
    with pytest.raises(Unsafe, match="so others could redirect"):
        sound(f"{place}/open", or_sticky=True)


@pytest.mark.parametrize(("where", "made"), [("own", True), ("sticky", True), ("open", False)])
def test_a_folder_is_made_where_nobody_else_could_have_made_it(place: Path, where: str, made: bool) -> None:
    new = place / where / "new/deep"
    if made:
        assert sound(str(new), 0o700).path == str(new)
        assert [each.stat().st_mode & 0o777 for each in (new.parent, new)] == [0o700, 0o700]
    else:
        with pytest.raises(Unsafe, match=f"{place}/{where} has mode"):
            sound(str(new), 0o700)
        assert not new.parent.exists()
        assert walk(str(new), 0o700).problem and new.exists()


def test_the_first_folder_that_others_can_write_is_named(place: Path) -> None:
    (place / "open/inner/more").mkdir()
    (place / "open/inner").chmod(0o777)
    for path in ("open/inner/more", "open/inner/absent"):
        with pytest.raises(Unsafe, match=f"{place}/open has mode"):
            walk(f"{place}/{path}", 0o700, strict=True)
    assert f"{place}/open has mode" in walk(f"{place}/open/inner/more").problem


@pytest.mark.parametrize("owner", ["trusted", "another"])
def test_what_another_user_owns_is_not_sound(place: Path, owner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_files, "trusted", lambda _uid: owner == "trusted")
    assert bool(safe_files.sticky((place / "sticky").stat())) == (owner == "trusted")
    assert not safe_files.sticky((place / "own").stat())
    words = safe_files.open_to_others("/x", (place / "open").stat())
    assert ("belongs to" in words) == (owner == "another") and ("has mode 0777" in words) == (owner == "trusted")
    if owner == "another":
        with pytest.raises(Unsafe, match=A_LINK):
            walk(f"{place}/own/link")


@pytest.mark.parametrize(("count", "fits"), [(LINKS, True), (LINKS + 1, False)])
def test_so_many_links_are_followed(tmp_path: Path, count: int, fits: bool) -> None:
    (tmp_path / "link0").mkdir()
    for number in range(count):
        (tmp_path / f"link{number + 1}").symlink_to(f"link{number}")
    if fits:
        assert walk(f"{tmp_path}/link{count}").path == f"{tmp_path}/link0"
    else:
        with pytest.raises(OSError, match="too many links"):
            walk(f"{tmp_path}/link{count}")


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY])
@pytest.mark.parametrize(
    ("name", "problem"),
    [("file", None), ("fifo", "FIFO"), ("folder", "folder"), ("link", "link"), ("socket", "socket"), ("absent", "")],
)
def test_a_regular_file_is_opened_and_nothing_else(tmp_path: Path, name: str, problem: str | None, flags: int) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("file")
    os.mknod(tmp_path / "socket", 0o140600)
    folder = walk(str(tmp_path))
    if problem is None:
        os.close(folder.open(name, flags))
    elif problem:
        with pytest.raises(Unsafe, match=f"{tmp_path}/{name} is a {problem} of"):
            folder.open(name, flags)
    else:
        assert folder.read_own(name) is None
        with pytest.raises(FileNotFoundError):
            folder.open(name, flags)


@pytest.mark.parametrize("how", ["", "mode", "name"])
def test_a_file_that_another_user_could_have_written_is_not_read(tmp_path: Path, how: str) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "file").chmod(0o666 if how == "mode" else 0o600)
    if how == "name":
        os.link(tmp_path / "file", tmp_path / "other")
    folder = walk(str(tmp_path))
    if not how:
        assert folder.read_own("file", 4) == b"cont"
        return
    with pytest.raises(Unsafe, match="2 name" if how == "name" else "mode 0666 and 1 name"):
        folder.read_own("file")


def test_a_file_has_its_name_when_it_is_whole(tmp_path: Path) -> None:
    folder = walk(str(tmp_path))
    folder.write("file", b"first", 0o640)
    assert (tmp_path / "file").read_bytes() == b"first" and (tmp_path / "file").stat().st_mode & 0o777 == 0o640
    with pytest.raises(KeyError), folder.fresh("file", 0o600) as handle:
        handle.write(b"half")
        raise KeyError
    assert [path.name for path in tmp_path.iterdir()] == ["file"] == folder.names()
    assert (tmp_path / "file").read_bytes() == b"first"
    assert folder.remove("file") and not folder.remove("file")


def test_a_tree_is_removed_and_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "tree/deep").mkdir(parents=True)
    (tmp_path / "tree/deep/file").touch()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").touch()
    (tmp_path / "tree/link").symlink_to("../kept")
    (tmp_path / "link").symlink_to("kept")
    folder = walk(str(tmp_path))
    for name in ("tree", "link", "absent"):
        folder.remove_tree(name)
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["kept", "kept/file"]


def test_a_folder_is_closed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    monkeypatch.setattr(safe_files, "os", SimpleNamespace(close=closed.append))
    for fd in (0, 7, -1):
        folder = Folder(fd, "/", "")
        folder.close()
        folder.close()
    assert closed == [0, 7]


def test_a_lock_is_waited_for_to_its_time_and_its_holder_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = walk(str(tmp_path))
    held = folder.lock("lock", 0)
    ticks = iter([10.0, 10.25, 10.5, 99.0])
    monkeypatch.setattr(safe_files, "time", SimpleNamespace(monotonic=lambda: next(ticks), sleep=lambda _: None))
    holders: list[str] = []
    with pytest.raises(Busy, match=rf"/lock is held by process {os.getpid()} \(.+\) of .*uid {os.geteuid()}"):
        folder.lock("lock", 0.5, holders.append)
    assert len(holders) == 1 and holders[0].startswith(f"process {os.getpid()} (")
    assert next(ticks) == 99.0
    os.close(held)
    ticks = iter([0.0])
    os.close(folder.lock("lock", 0.5))


@pytest.mark.parametrize(
    ("row", "holder"),
    [
        ("1: FLOCK ADVISORY WRITE 7 08:01:55 0 EOF", "process 7"),
        ("1: -> FLOCK ADVISORY WRITE 7 08:01:55 0 EOF", "another process"),
        ("1: POSIX ADVISORY WRITE 7 08:01:55 0 EOF", "another process"),
        ("1: FLOCK ADVISORY WRITE 7 08:01:155 0 EOF", "another process"),
        ("1: FLOCK ADVISORY WRITE 7", "another process"),
        ("", "another process"),
    ],
)
def test_a_holder_is_read_of_the_kernels_table(row: str, holder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(path: str, _mode: str = "r") -> Any:
        if path != "/proc/locks":
            raise FileNotFoundError(path)
        return io.StringIO(f"{row}\n")

    monkeypatch.setattr(safe_files, "open", opened, raising=False)
    assert safe_files.holder_of(55) == holder


@pytest.mark.parametrize("uid", [0, 1])
def test_roots_records_and_locks_are_apart_from_a_users(uid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(safe_files, "sound", lambda path, make: asked.append((path, make)))
    home = f"{pwd.getpwuid(1).pw_dir}/.local/state/shakedown"
    assert safe_files.state_path() == (home if uid else safe_files.ROOTS_STATE)
    safe_files.locks()
    assert asked == [(home, 0o700) if uid else (safe_files.ROOTS_LOCKS, 0o755)]
