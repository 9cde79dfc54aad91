"""The tool that flips conditions: what it says of a test is what the test says of the flipped code."""

from __future__ import annotations

import os
from pathlib import Path

from tests.mutants.running import server

CODE = """\
def is_large(number):
    return number > 1


def counted():
    def inner(number):
        return number > 1

    return inner


class Sum:
    least = 3
    is_enough = staticmethod(counted())
"""
TESTS = """\
import gc
from shakedown.small import Sum, counted, is_large

def test_large():
    assert is_large(2) and not is_large(1)

def test_inner():
    assert not counted()(1)

def test_class():
    assert Sum.least == 3 and Sum.is_enough(2)
"""
FILES = {
    "shakedown/__init__.py": "",
    "tests/__init__.py": "",
    "tests/test_small.py": TESTS,
    "tests/conftest.py": "import gc\n\ndef pytest_collection_finish():\n    gc.freeze()\n",  # as tests/conftest.py does
    "pytest.ini": "[pytest]\n",
}


def test_a_change_reaches_the_tests_that_call_it(tmp_path: Path) -> None:
    folder = tmp_path / "0"
    for name, text in {**FILES, "shakedown/small.py": CODE}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    with server(folder, ["tests/test_small.py"]) as pipe:
        pipe.send("tests/test_small.py")
        seen = pipe.recv()
        assert [test.failed for test in seen.values()] == [False] * 3

        def noticed(old: str, new: str) -> str | None:
            before, _, after = CODE.rpartition(old)
            changed = f"{before}{new}{after}"
            (folder / "shakedown/small.py").write_text(changed)
            os.utime(folder / "shakedown/small.py", (0, len(changed)))  # no compiled file fits
            pipe.send(("shakedown/small.py", CODE, changed, [*seen], 60))
            failed: str | None = pipe.recv()
            return failed and failed.partition("::")[2]

        assert noticed("number > 1\n\n\n", "number >= 1\n\n\n") == "test_large"
        assert noticed("number > 1", "number >= 1") == "test_inner"
        assert noticed("least = 3", "least = 4") == "test_class"
        assert noticed("least = 3", "least = 3 + 0") is None
