"""For every level of tests."""

import gc
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests.machine_state import make_neutral

# A test is not timed: on a busy machine any example may take longer than hypothesis' 200 ms.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

make_neutral()

# What is collected stays until the end: Python need not look through it all the time.
gc.set_threshold(50_000, 20, 100)

# Whoever starts the tests in the background (`&` in a script, nohup) has them, and what they start, ignore these.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def patched(path: Path) -> bool:
    """Whether gevent has patched this process: the tests of facts and operations need that, others may hang."""
    monkey = sys.modules.get("gevent.monkey")
    return not {"facts", "operations"} & set(path.parts) and monkey is not None and bool(monkey.saved)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> None:
    """A module that lets pyinfra's command line have gevent patch this process would hang others at random."""
    if patched(module_path):
        raise pytest.UsageError(f"gevent has patched this process: a module before {module_path} imports what does")


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """As would a test: `shakedown.cli.nodes` does so where a command that runs in this process imports it."""
    if patched(item.path):
        pytest.exit(f"gevent has patched this process: {item.nodeid} imports what does", 1)


def pytest_make_parametrize_id(val: object) -> str | None:
    """A long text is named by its beginning: each process of a parallel run sends the names of all tests."""
    return ascii(val[:80])[1:-1] + "..." if isinstance(val, str | bytes) and len(val) > 200 else None


def pytest_collection_finish() -> None:
    """From here on no search for garbage goes through the tests themselves."""
    gc.freeze()
