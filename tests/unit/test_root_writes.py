"""What root makes on a node, while another user lays links, swaps folders and holds locks in its way."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shakedown.facts.git import Checkout
from shakedown.facts.records import Records, guarded
from shakedown.facts.venv import Environment
from shakedown.node.assets import files as files_script
from shakedown.node.safe_files import Unsafe, sound, walk
from shakedown.operations.atomic import ASSETS, FOLDER, HEADER, MARK, Step, command, remember
from shakedown.transport.program import program
from tests.sent_scripts import NOBODY, NODE, run, text_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be attacked by another user")

NO_ROOM = "trap '' XFSZ; ulimit -f 0;"  # what a full disk does to a write, without a disk of our own


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder of root's that everybody can look into, as /srv is; `theirs` in it belongs to nobody."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    (made / "theirs").mkdir()
    os.chown(made / "theirs", NOBODY, NOBODY)
    (made / "precious").write_text("root's\n")
    (made / "elsewhere").mkdir()
    yield made
    shutil.rmtree(made)


def act(place: Path, do: str, **rest: Any) -> tuple[int, str]:
    uid, before = rest.pop("uid", None), rest.pop("before", "")
    done = run("files.py", {"do": do, **rest}, place / "state", uid, before)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr


def write(place: Path, path: Path, *lines: str, **rest: Any) -> tuple[int, str]:
    return act(place, "write", path=str(path), lines=list(lines or ("new",)), mode="0644", **rest)


def untouched(place: Path) -> None:
    assert (place / "precious").read_text() == "root's\n"
    assert list((place / "elsewhere").iterdir()) == []


# What is written


def test_a_file_is_written_with_its_mode_and_nothing_beside_it(place: Path) -> None:
    path = place / "new" / "90-shakedown.conf"
    lines = [HEADER, "a = 'b' \"$HOME\" %s \\n", "ünïcode"]
    assert act(place, "write", path=str(path), lines=lines, mode="0640") == (0, "")
    assert path.read_text().splitlines() == lines
    assert oct(path.stat().st_mode & 0o777) == "0o640" and oct(path.parent.stat().st_mode & 0o777) == "0o755"
    assert list(path.parent.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_file_and_says_so(place: Path) -> None:
    path = place / "new" / "90-shakedown.conf"
    assert write(place, path, "old")[0] == 0
    code, said = write(place, path, "new", before=NO_ROOM)
    assert code == 1 and str(path) in said and "not done" in said
    assert [(each, each.read_text()) for each in path.parent.iterdir()] == [(path, "old\n")]


def test_a_file_system_that_takes_no_files_says_so(place: Path) -> None:
    code, said = write(place, Path("/proc/shakedown/x.conf"))
    assert code == 1 and "/proc/shakedown" in said


def test_a_folder_in_the_place_of_a_file_is_told(place: Path) -> None:
    code, said = write(place, place / "elsewhere")
    assert code == 1 and "is a folder" in said


def test_a_file_of_the_controller_comes_whole(place: Path) -> None:
    content = os.urandom(300_000)
    path = place / "lib" / "x.so"
    assert act(place, "write", path=str(path), content=base64.b64encode(content).decode(), mode="0755")[0] == 0
    assert path.read_bytes() == content and path.stat().st_mode & 0o777 == 0o755


# Who could redirect it

LAID: dict[str, Callable[[Path], Any]] = {
    "a link for the file": lambda theirs: (theirs / "file").symlink_to("../precious"),
    "a link for the folder": lambda theirs: (theirs / "sub").symlink_to("../elsewhere"),
    "a hard link": lambda theirs: os.link(theirs.parent / "precious", theirs / "file"),
    "a FIFO": lambda theirs: os.mkfifo(theirs / "file"),
    "nothing": lambda theirs: None,
}


@pytest.mark.parametrize("what", sorted(LAID))
@pytest.mark.parametrize("name", ["file", "sub/file", "sub/deeper/file"])
def test_nothing_is_written_where_another_user_rules(place: Path, what: str, name: str) -> None:
    LAID[what](place / "theirs")
    for path in (place / "theirs").iterdir():
        if path.is_symlink():
            os.lchown(path, NOBODY, NOBODY)
    code, said = write(place, place / "theirs" / name)
    assert code == 1
    assert "nobody (uid 65534)" in said and ("connect as its owner" in said or "name the folder itself" in said), said
    untouched(place)


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
def test_a_folder_of_root_s_that_others_may_write_is_theirs(place: Path, mode: int) -> None:
    folder = place / "open"
    folder.mkdir()
    os.chown(folder, 0, NOBODY)
    folder.chmod(mode)
    code, said = write(place, folder / "file")
    assert code == 1 and f"mode {mode:04o}" in said and "chmod go-w" in said
    code, said = write(place, folder / "sub" / "file")
    assert code == 1 and list(folder.iterdir()) == []


def test_in_a_sticky_folder_only_what_is_ours_counts(place: Path) -> None:
    sticky = place / "tmp"
    sticky.mkdir()
    sticky.chmod(0o1777)
    (sticky / "ours").mkdir()
    (sticky / "planted").mkdir()
    os.chown(sticky / "planted", NOBODY, NOBODY)
    (sticky / "link").symlink_to("../elsewhere")
    assert write(place, sticky / "ours" / "file")[0] == 0
    for name in ("planted", "link"):
        assert write(place, sticky / name / "file")[0] == 1
    untouched(place)


def test_a_place_to_work_in_on_everybody_s_scratch_is_made_by_us_or_refused(place: Path) -> None:
    scratch = place / "scratch"
    scratch.mkdir()
    scratch.chmod(0o1777)
    assert act(place, "folder", path=f"{scratch}/venv")[0] == 0
    assert (scratch / "venv").is_dir() and not (place / "opt").exists()
    assert act(place, "folder", path=f"{place}/opt/venv")[0] == 0
    assert (place / "opt").exists() and not (place / "opt/venv").exists(), "elsewhere whoever works there makes it"
    (scratch / "planted").mkdir()
    os.chown(scratch / "planted", NOBODY, NOBODY)
    (scratch / "link").symlink_to("../elsewhere")
    for name in ("planted", "link"):
        assert act(place, "folder", path=f"{scratch}/{name}")[0] == 1
        assert act(place, "folder", path=f"{scratch}/{name}/deeper")[0] == 1
    shell = guarded(f"{scratch}/planted", "echo run")
    assert "error" in subprocess.run(["sh", "-c", shell], capture_output=True, text=True).stdout
    shell = guarded(f"{scratch}/venv", "echo run")
    assert subprocess.run(["sh", "-c", shell], capture_output=True, text=True).stdout == "run\n"
    # What is there a moment later could be another user's: it is not looked at again.
    shell = guarded(f"{scratch}/absent", "echo run")
    assert subprocess.run(["sh", "-c", shell], capture_output=True, text=True).stdout == "kind absent\n"


def test_links_that_root_laid_are_followed(place: Path) -> None:
    """/lib is one on every distribution of today, and /var or /opt on many a node."""
    (place / "a").symlink_to("b/../elsewhere")
    (place / "b").mkdir()
    (place / "c").symlink_to(place / "a")
    assert write(place, place / "c" / "file")[0] == 0
    assert (place / "elsewhere/file").read_text() == "new\n"
    (place / "ring").symlink_to("ring")
    code, said = write(place, place / "ring" / "file")
    assert code == 1 and "too many links" in said


def test_a_link_that_another_user_left_in_a_folder_of_root_s_is_not(place: Path) -> None:
    (place / "a").symlink_to("elsewhere")
    os.lchown(place / "a", NOBODY, NOBODY)
    assert write(place, place / "a" / "file")[0] == 1
    untouched(place)


@pytest.mark.parametrize("path", ["", "file", "/", "/tmp/", "/tmp/..", "/tmp/.", "../x"])
def test_what_is_no_path_of_a_file_is_refused(place: Path, path: str) -> None:
    assert act(place, "write", path=path, lines=["x"], mode="0644")[0] == 1


def test_a_user_s_own_folders_are_safe_for_that_user(place: Path) -> None:
    """Also with the group that many distributions give every user, and a umask of 002."""
    home = place / "theirs"
    home.chmod(0o775)
    assert write(place, home / "x" / "file", uid=NOBODY)[0] == 1, "nogroup is not nobody's own group"
    home.chmod(0o755)
    (place / "state").mkdir()
    os.chown(place / "state", NOBODY, NOBODY)
    code, said = write(place, home / "x" / "file", uid=NOBODY)
    assert code == 0, said
    assert (home / "x/file").stat().st_uid == NOBODY


SWAP = """
import ctypes, os, sys
os.chdir(sys.argv[1])
os.mkdir("sub")
os.symlink("../elsewhere", "link")
print("ready", flush=True)
exchange = ctypes.CDLL(None).renameat2
while True:
    exchange(-100, b"sub", -100, b"link", 2)
"""


def test_a_folder_that_is_swapped_all_the_time_leads_nowhere(place: Path) -> None:
    """A folder and a link change places thousands of times a second: what was looked at is what is opened."""
    thief = subprocess.Popen(
        ["/usr/bin/python3", "-c", SWAP, place / "theirs"], user=NOBODY, group=NOBODY, stdout=subprocess.PIPE
    )
    opened = refused = 0
    try:
        assert thief.stdout and thief.stdout.readline()
        end = time.monotonic() + 6
        while time.monotonic() < end and min(opened, refused) < 1_000:
            try:
                folder = walk(f"{place}/theirs/sub")
            except (Unsafe, NotADirectoryError):
                refused += 1
                continue
            opened += 1
            where = str(Path(f"/proc/self/fd/{folder.fd}").readlink())
            assert where.startswith(f"{place}/theirs/"), where
            if opened % 100 == 0:
                name = f"t{opened}"
                with contextlib.suppress(Unsafe, NotADirectoryError):
                    files_script.token({"folder": f"{place}/theirs/sub", "name": name, "content": "x"})
    finally:
        thief.kill()
        thief.wait()
    assert opened > 100 and refused > 100
    untouched(place)


# Records


def as_root(steps: list[Step], setting: str, place: Path) -> tuple[int, str]:
    (document,) = remember(setting, steps).args
    document = {**document, "path": document["path"].replace(FOLDER, f"{place}/before")}
    done = run("files.py", document, place / "state")
    return done.returncode, done.stderr


def records(place: Path) -> Any:
    shell = Records().command(folder=f"{place}/before")
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, timeout=30)
    return Records().process(done.stdout.splitlines())


def test_the_first_record_of_a_setting_stays(place: Path) -> None:
    for value in ("1", "0"):
        assert as_root([Step("file", "/x", value)], "numa_balancing", place) == (0, "")
    path = place / "before/numa_balancing.json"
    assert json.loads(path.read_text())["restore"] == [{"kind": "file", "target": "/x", "value": "1"}]
    assert oct(path.parent.stat().st_mode & 0o777) == "0o700" and oct(path.stat().st_mode & 0o777) == "0o600"
    assert list(path.parent.iterdir()) == [path]
    assert list(records(place)["files"]) == ["numa_balancing.json"]


@pytest.mark.parametrize(
    "setting", ["groups.domain users.ada", "x;touch y", "a\nb", "$(reboot)", "../../etc/x", "a/b", "-rf", "", "é" * 300]
)
def test_any_name_of_a_setting_is_one_file_in_the_folder_of_records(place: Path, setting: str) -> None:
    assert as_root([], setting, place) == (0, "")
    (path,) = (place / "before").iterdir()
    assert json.loads(path.read_text())["setting"] == setting
    assert len(records(place)["files"]) == 1


def test_names_that_look_alike_are_two_records(place: Path) -> None:
    for setting in ("a/b", "a_b", "a b"):
        assert as_root([], setting, place)[0] == 0
    assert len(list((place / "before").iterdir())) == 3


def test_without_a_record_nothing_goes_on(place: Path) -> None:
    (document,) = remember("numa_balancing", []).args
    document = {**document, "path": f"{place}/before/numa_balancing.json"}
    done = run("files.py", document, place / "state", before=NO_ROOM)
    assert done.returncode == 1 and list((place / "before").iterdir()) == []
    done = run("files.py", document, place / "state", uid=NOBODY)
    assert done.returncode == 1 and "needs root: use _sudo=True" in done.stderr


FORGED: dict[str, Callable[[Path], Any]] = {
    "another's": lambda path: os.chown(path, NOBODY, NOBODY),
    "open to others": lambda path: path.chmod(0o666),
    "with another name": lambda path: os.link(path, path.parent.parent / "theirs" / "x"),
    "a link": lambda path: (path.rename(path.parent.parent / "x"), path.symlink_to(path.parent.parent / "x")),
    "a FIFO": lambda path: (path.unlink(), os.mkfifo(path)),
    "in another's folder": lambda path: os.chown(path.parent, NOBODY, NOBODY),
    "in an open folder": lambda path: path.parent.chmod(0o777),
}


@pytest.mark.parametrize("how", sorted(FORGED))
def test_a_record_that_another_user_could_have_written_is_not_gone_by(place: Path, how: str) -> None:
    assert as_root([Step("created", "/etc/passwd")], "x", place)[0] == 0
    FORGED[how](place / "before/x.json")
    found = records(place)
    assert found["problem"] and found["files"] == {}
    code, _ = as_root([Step("file", "/y", "1")], "x", place)
    assert code == 1, "nor is it taken for the first one"


def test_no_records_are_no_problem(place: Path) -> None:
    assert records(place) == {"there": False, "problem": "", "files": {}}


# What is kept, restored and removed


def test_what_stood_there_is_kept_and_comes_back_as_it_was(place: Path) -> None:
    one, other, kept = place / "lib" / "one.so", place / "lib" / "other.so", place / "kept"
    one.parent.mkdir()
    one.write_bytes(b"one")
    one.chmod(0o750)
    os.chown(one, 0, NOBODY)
    os.utime(one, ns=(5_000_000_007, 6_000_000_009))
    other.symlink_to("one.so")
    for path in (one, other):
        for content in (b"new", b"newer"):
            assert act(place, "keep", path=str(path), kept=f"{kept}/{path.name}")[0] == 0
            assert act(place, "write", path=str(path), content=base64.b64encode(content).decode(), mode="0644")[0] == 0
        assert path.read_bytes() == b"newer" and not path.is_symlink()
        for _ in range(2):
            assert act(place, "restore", path=str(path), kept=f"{kept}/{path.name}")[0] == 0
    assert other.is_symlink() and other.readlink() == Path("one.so")
    found = one.stat()
    assert (one.read_bytes(), found.st_mode & 0o777, found.st_gid) == (b"one", 0o750, NOBODY)
    assert found.st_mtime_ns == 6_000_000_009 and list(kept.iterdir()) == []


def test_only_what_is_ours_is_removed_and_a_link_is_not_followed(place: Path) -> None:
    (place / "script").write_text(f"#!/bin/sh\n{HEADER}\n")
    (place / "foreign").write_text("mine\n")
    (place / "link").symlink_to("script")
    names = [str(place / name) for name in ("foreign", "link", "script", "absent", "no/folder")]
    assert act(place, "remove", paths=names, marked=MARK)[0] == 0
    assert not (place / "script").exists() and (place / "foreign").exists() and (place / "link").is_symlink()
    assert act(place, "remove", paths=names, marked=None)[0] == 0
    assert not (place / "foreign").exists() and not (place / "link").is_symlink()
    (place / "theirs/x").write_text("mine")
    assert act(place, "remove", paths=[str(place / "theirs/x")], marked=None)[0] == 1
    assert (place / "theirs/x").exists()


def test_a_folder_goes_with_all_that_is_in_it_and_nothing_else(place: Path) -> None:
    (place / "before/files/deep").mkdir(parents=True)
    (place / "before/files/deep/x").write_text("x")
    (place / "before/link").symlink_to("../elsewhere")
    (place / "elsewhere/y").write_text("y")
    assert act(place, "forget", path=f"{place}/before")[0] == 0
    assert not (place / "before").exists() and (place / "elsewhere/y").exists()
    for left in ("files.lock", "before"):  # the state folder itself goes when nothing else is in it
        (place / "state/before").mkdir(exist_ok=True)
        if left == "before":
            (place / "state/files.lock").unlink()
        text = text_of(ASSETS / "files.py", place / "state")
        text = text.replace(f"ROOTS_LOCKS = '{place}/state'", f"ROOTS_LOCKS = '{place}/locks'")
        document = json.dumps({"do": "forget", "path": f"{place}/state/before"})
        subprocess.run([sys.executable, "-I", "-c", text], input=document, text=True, check=True)
        assert (place / "state").exists() == (left == "files.lock")
    assert act(place, "forget", path=f"{place}/before")[0] == 0


# Locks


def test_two_writers_come_one_after_the_other(place: Path) -> None:
    with (place / "out").open("w") as out:
        results: list[int] = []
        threads = [
            threading.Thread(target=lambda n=n: results.append(write(place, place / "f", *([str(n)] * 2000))[0]))  # type: ignore[misc]
            for n in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [0] * 6 and out
    lines = (place / "f").read_text().splitlines()
    assert len(lines) == 2000 and len(set(lines)) == 1
    assert sorted(path.name for path in place.iterdir()) == ["elsewhere", "f", "out", "precious", "state", "theirs"]


def test_a_lock_that_is_held_is_waited_for_and_its_holder_named(place: Path) -> None:
    assert write(place, place / "f")[0] == 0
    lock = place / "state/files.lock"
    with lock.open("r+") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        begun = time.monotonic()
        with pytest.raises(Exception, match=f"held by process {os.getpid()} "):
            sound(str(lock.parent)).lock(lock.name, 1.0)
        assert 0.9 < time.monotonic() - begun < 30


@pytest.mark.parametrize("how", ["another's", "open", "a link", "a FIFO", "in another's folder"])
def test_a_lock_that_another_user_laid_is_refused_at_once(place: Path, how: str) -> None:
    state = place / "state"
    state.mkdir(mode=0o700)
    lock = state / "files.lock"
    lock.touch(mode=0o600)
    if how == "another's":
        os.chown(lock, NOBODY, NOBODY)
    elif how == "open":
        lock.chmod(0o666)
    elif how == "in another's folder":
        os.chown(state, NOBODY, NOBODY)
    else:
        lock.unlink()
        lock.symlink_to("../precious") if how == "a link" else os.mkfifo(lock)
    begun = time.monotonic()
    code, said = write(place, place / "f")
    assert code == 1 and time.monotonic() - begun < 40 and "state" in said
    untouched(place)


# Facts that would run what stands in a folder


@pytest.mark.parametrize("fact", ["checkout", "environment"])
def test_nothing_of_another_user_s_is_run_as_root(place: Path, fact: str) -> None:
    theirs = place / "theirs"
    planted = theirs / "env/bin/python"
    planted.parent.mkdir(parents=True)
    planted.write_text(f"#!/bin/sh\ntouch {place}/elsewhere/run\n")
    planted.chmod(0o755)
    (theirs / "env/pyvenv.cfg").touch()
    subprocess.run(["git", "init", "--quiet", theirs / "env"], check=True)
    subprocess.run(["git", "-C", theirs / "env", "config", "core.fsmonitor", planted], check=True)
    path = f"{theirs}/env"
    shell = (
        Checkout().command(path=path, commit="0" * 40)
        if fact == "checkout"
        else Environment().command(path=path, modules=[])
    )
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    untouched(place)
    found = (Checkout() if fact == "checkout" else Environment()).process(done.stdout.splitlines())
    assert "nobody (uid 65534)" in str(found["error"])


# Tokens


def test_a_token_is_seen_by_others_and_taken_away(place: Path) -> None:
    shared = str(place / "theirs" / "cache")
    mark = {"folder": shared, "name": ".shakedown-run-a", "content": "a"}
    assert act(place, "token", **mark)[0] == 0
    assert act(place, "see", **mark, patience_s=1)[0] == 0
    assert act(place, "see", **{**mark, "content": "b"}, patience_s=1)[0] == 1
    assert act(place, "token", **mark)[0] == 1, "one that is there is not ours"
    assert act(place, "untoken", **mark)[0] == 0
    assert act(place, "see", **mark, patience_s=1)[0] == 1
    assert list(Path(shared).iterdir()) == []


@pytest.mark.parametrize("how", ["link", "fifo", "hard"])
def test_a_token_that_another_user_laid_is_neither_written_nor_waited_for(place: Path, how: str) -> None:
    token = place / "theirs/t"
    {"link": lambda: token.symlink_to("../precious"), "fifo": lambda: os.mkfifo(token)}.get(
        how, lambda: os.link(place / "precious", token)
    )()
    mark = {"folder": str(place / "theirs"), "name": "t", "content": "a"}
    assert act(place, "token", **mark)[0] == 1
    begun = time.monotonic()
    assert act(place, "see", **mark, patience_s=1)[0] == 1 and time.monotonic() - begun < 40
    untouched(place)


def test_the_walk_says_what_is_not_sound(place: Path) -> None:
    assert sound(str(place)).problem == ""
    assert "nobody" in walk(str(place / "theirs")).problem
    with pytest.raises(Unsafe, match="not an absolute path"):
        walk("relative")


def test_every_act_of_the_script_is_tried_here_or_with_the_agent() -> None:
    text = Path(__file__).read_text() + Path(__file__).with_name("test_agent_install.py").read_text()
    assert all(f'"{name}"' in text for name in files_script.ACTS)
    assert command("write").function.__name__ == "on_node"
    assert program(NODE / "records.py").isascii()
