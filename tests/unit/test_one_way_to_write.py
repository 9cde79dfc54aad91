"""No operation makes, moves or removes a file on a node but by assets/files.py."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from shakedown import operations

FOLDER = Path(operations.__file__).parent
# What changes files in shell text. A redirection to /dev/null or to another descriptor makes none.
CHANGES = re.compile(
    r"(?<![\w./-])(mkdir|touch|cp|mv|rm|rmdir|ln|install -\w|tee|dd|chmod|chown|chgrp|truncate|mktemp|sed -i)(?![\w.-])"
    r"|(?<![-<0-9&])[12]?(>)(?!\s*/dev/null|&|=)"
)
# Files of the kernel, and a record inside a checkout that was looked at before.
ALLOWED = {
    "devices.py": {"chgrp", "chmod"},  # of device files
    "tuning.py": {">"},  # /proc/sys
    "rollback.py": {">", "chgrp", "chmod", "rmdir"},  # /proc/sys, /sys, device files (SHAPES), and /etc/shakedown
    "patch.py": {">", "mv"},  # .git/shakedown
}


def shell_texts(path: Path) -> Iterator[str]:
    """Every piece of shell text in the commands of a module, and what is yielded as plain text."""
    for node in ast.walk(ast.parse(path.read_text())):
        called = (isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", ""))) or ""
        if called in ("StringCommand", "run_shell_command") or isinstance(node, ast.Yield):
            for each in ast.walk(node):
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield each.value


def test_operations_change_files_in_one_way_only() -> None:
    found: dict[str, set[str]] = {}
    for path in FOLDER.glob("*.py"):
        words = {word for text in shell_texts(path) for match in CHANGES.findall(text) for word in match if word}
        if words:
            found[path.name] = words
    assert found == ALLOWED


def test_nothing_is_uploaded_past_it() -> None:
    """pyinfra's own way goes through a file in /tmp, and its operations on files follow links."""
    for path in FOLDER.glob("*.py"):
        text = path.read_text()
        assert "FileUploadCommand" not in text and "put_file" not in text, path
        assert not re.search(r"from pyinfra\.operations import .*\b(files|server|systemd)\b", text), path


def test_it_sees_what_it_is_to_see() -> None:
    for text in ("mkdir -p /x", "a; rm -f x", "echo x > /etc/y", "printf x >>$p", "cp -a a b", 'x >"$f"'):
        assert CHANGES.search(text), text
    for text in ("2>/dev/null", ">&2", "2>&1", "a -> b", "/usr/bin/rm-something", "mv.service", ">= 3"):
        assert not CHANGES.search(text), text
