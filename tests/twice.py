"""Run pytest, and what failed once more by itself when the rest has ended.

    python -m tests.twice [PYTEST ARGUMENTS...]

Many tests are of real processes, on a machine that may be anybody's and busy with other work. A test that fails among
the others and passes alone, without any change, is named in the last lines and counts as passed; one that fails both
times has failed, as has a run in which more than MOST fail: that many do not fail by load.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

MOST = 12  # of some thousand tests
TESTS_FAILED = 1  # pytest's exit code
PARALLEL = ("-n", "--numprocesses", "--dist", "--maxprocesses")


def run(arguments: Sequence[str]) -> int:
    """The exit code of pytest, of the second run where there was one. A usage error, an interrupt or a broken fixture
    of pytest itself is not tried again."""
    with tempfile.TemporaryDirectory(prefix="shakedown-tests-") as folder:
        cache = ("-o", f"cache_dir={folder}")
        code = _pytest([*cache, *arguments])
        failed = _failed(Path(folder))
        if code != TESTS_FAILED or not 0 < len(failed) <= MOST:
            return code
        print(f"\n{len(failed)} failed; tried again by themselves:", flush=True)
        code = _pytest([*cache, "--last-failed", "--last-failed-no-failures", "none", *in_line(arguments)])
        word = "passed at the second try" if code == 0 else "not all passed at the second try"
        print(f"{word}: {', '.join(failed)}", flush=True)
        return code


def in_line(arguments: Sequence[str]) -> list[str]:
    """The arguments without those that run tests at the same time."""
    kept, skip = [], False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in PARALLEL:
            skip = True
        elif not argument.startswith(("-n", "--numprocesses=", "--dist=", "--maxprocesses=")) and (
            argument != "--no-loadscope-reorder"
        ):
            kept.append(argument)
    return kept


def _pytest(arguments: Sequence[str]) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def _failed(cache: Path) -> list[str]:
    """The ids of the tests that failed, by pytest's own record.

    xdist adds `@GROUP` to the ids of groups. A second run knows no test of such a name, and would run every test.
    """
    record = cache / "v/cache/lastfailed"
    try:
        failed = json.loads(record.read_text("utf-8"))
    except FileNotFoundError:
        return []
    names = sorted({name[: name.rfind("@")] if name.rfind("@") > name.rfind("]") else name for name in failed})
    record.write_text(json.dumps(dict.fromkeys(names, True)), "utf-8")
    return names


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
