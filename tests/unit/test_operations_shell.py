"""The shell text of facts and operations, run by a shell: what a fixture of commands cannot show."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import OperationValueError

from shakedown.facts.settings import Contents, Modules, PciRegisters, Tools


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
