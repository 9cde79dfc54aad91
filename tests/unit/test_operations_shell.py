"""The shell text of facts and operations, run by a shell: what a fixture of commands cannot show."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import OperationValueError

from facts.settings import Contents, Modules, PciRegisters, Tools
from operations import atomic, record
from operations.record import Step, remember

# No room for a single byte: what a full disk does to a write, without a disk of our own.
NO_ROOM = "trap '' XFSZ; ulimit -f 0; "


def sh(command: str | StringCommand, before: str = "") -> subprocess.CompletedProcess[str]:
    text = command if isinstance(command, str) else command.get_raw_value()
    return subprocess.run(["sh", "-c", before + text], capture_output=True, text=True, timeout=20)


def contents(*patterns: str) -> dict[str, list[str] | None]:
    result = sh(Contents().command(patterns=list(patterns)))
    assert result.returncode == 0, result.stderr
    return Contents().process(result.stdout.splitlines())


def test_contents_come_back_as_they_are(tmp_path: Path) -> None:
    lines = ["  indented\\n", "", "= /etc/passwd", "! /etc/shadow", "no newline at the end"]
    (tmp_path / "a.conf").write_text("\n".join(lines))
    (tmp_path / "b.conf").touch()
    (tmp_path / "c").mkdir()
    (tmp_path / "broken.conf").symlink_to("nowhere")
    found = contents(f"{tmp_path}/*.conf", f"{tmp_path}/c", f"{tmp_path}/absent")
    assert found == {f"{tmp_path}/a.conf": lines, f"{tmp_path}/b.conf": [], f"{tmp_path}/c": []}


@pytest.mark.parametrize("path", ["/proc/sys/fs/nr_open", "/proc/sys/kernel/pid_max", "/proc/cmdline"])
def test_numbers_of_the_kernel_are_read_whole(path: str) -> None:
    """Read byte by byte, as a shell does, these end after one digit."""
    assert contents(path)[path] == Path(path).read_text().splitlines()


@pytest.mark.parametrize("pattern", ["", "/etc/$(reboot)", "/a; reboot", "/a b", "/a\n", "/a'"])
def test_nothing_but_a_pattern_reaches_the_shell(pattern: str) -> None:
    with pytest.raises(OperationValueError):
        Contents().command(patterns=[pattern])
    with pytest.raises(OperationValueError):
        Tools().command(names=[pattern])
    with pytest.raises(OperationValueError):
        Modules().command(names=[pattern])
    with pytest.raises(OperationValueError):
        PciRegisters().command(register=pattern)


def test_tools_are_found_without_sbin_in_the_path() -> None:
    result = sh(Tools().command(names=["sh", "no-such-tool"]), before="PATH=/nowhere; ")
    assert list(Tools().process(result.stdout.splitlines())) == ["sh"]


def test_a_file_is_written_with_its_mode_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "90-shakedown.conf"
    lines = [atomic.HEADER, "a = 'b' \"$HOME\" %s \\n"]
    assert sh(atomic.write(str(path), lines, "0640")).returncode == 0
    assert path.read_text().splitlines() == lines
    assert oct(path.stat().st_mode & 0o777) == "0o640"
    assert list(path.parent.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_file_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "90-shakedown.conf"
    path.write_text("old\n")
    result = sh(atomic.write(str(path), ["new"]), before=NO_ROOM)
    assert result.returncode != 0
    assert f"{path} was not written" in result.stderr
    assert [(each, each.read_text()) for each in tmp_path.iterdir()] == [(path, "old\n")]


def test_a_file_system_that_takes_no_files_says_so() -> None:
    result = sh(atomic.write("/proc/shakedown/x.conf", ["new"]))
    assert result.returncode != 0
    assert "/proc/shakedown" in result.stderr


def test_the_first_record_of_a_setting_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = as_root(tmp_path, monkeypatch)
    for value in ("1", "0"):
        assert sh(remember("numa_balancing", [Step("file", "/x", value)]), before).returncode == 0
    path = tmp_path / "before/numa_balancing.json"
    assert json.loads(path.read_text())["restore"] == [{"kind": "file", "target": "/x", "value": "1"}]
    assert oct(path.parent.stat().st_mode & 0o777) == "0o700"
    assert list(path.parent.iterdir()) == [path]


def test_without_a_record_nothing_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = as_root(tmp_path, monkeypatch)
    result = sh(remember("numa_balancing", []), before + NO_ROOM)
    assert result.returncode != 0
    assert "nothing is changed" in result.stderr
    assert list((tmp_path / "before").iterdir()) == []


def test_without_root_nothing_is_recorded_and_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_root(tmp_path, monkeypatch)
    result = sh(remember("numa_balancing", []), before="id() { echo 1000; }; ")
    assert result.returncode != 0
    assert "needs root: use _sudo=True" in result.stderr
    assert not (tmp_path / "before").exists()


def as_root(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Records go to a folder of the test, and the shell takes itself for root's."""
    monkeypatch.setattr(record, "FOLDER", str(folder / "before"))
    return "id() { echo 0; }; "
