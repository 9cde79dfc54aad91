"""Fixtures of the lab. Every test in this folder carries the mark `lab`; without root it fails, it is not skipped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.lab import namespaces
from tests.lab.machine import require_root
from tests.lab.namespaces import Rack
from tests.lab.node_spec import NodeSpec
from tests.lab.vms import VmLab, vms

HERE = Path(__file__).parent
LONGEST = {"test_isolation", "test_trials", "test_rolling", "test_soak", "test_scope"}  # two minutes in one test

RackMaker = Callable[..., Rack]


def pytest_itemcollected(item: pytest.Item) -> None:
    """For a run in parallel, tests that share what is made once per file stay in one process, unless the file names its
    group. Once all are collected is too late: pytest-xdist reads the groups first."""
    if item.path.is_relative_to(HERE):
        item.add_marker(pytest.mark.lab)
        if not item.get_closest_marker("xdist_group") and any(made[-1].scope == "module" for made in _used(item)):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The virtual machines begin at once, then what shares nodes and runs in one process, then the longest tests: else
    the run would end with one of them alone."""

    def turn(item: pytest.Item) -> tuple[bool, bool, bool]:
        machines = "vm_pair" in item.fixturenames  # type: ignore[attr-defined]
        return not machines, not item.get_closest_marker("xdist_group"), item.path.stem not in LONGEST

    items.sort(key=turn)


def _used(item: pytest.Item) -> Iterable[Sequence[pytest.FixtureDef[object]]]:
    """The definitions of a test's fixtures."""
    definitions: Iterable[Sequence[pytest.FixtureDef[object]]] = getattr(item, "_fixtureinfo").name2fixturedefs.values()  # noqa: B009
    return definitions


@pytest.fixture(scope="session", autouse=True)
def lab_rights() -> None:
    require_root()


@pytest.fixture
def rack() -> Iterator[RackMaker]:
    """Starts nodes that end with the test: `rack(3)`, `rack(2, NodeSpec(user="ops"))`, `rack([spec, spec])`."""
    with ExitStack() as stack:

        def make(nodes: int | Sequence[NodeSpec] = 3, spec: NodeSpec | None = None) -> Rack:
            return stack.enter_context(namespaces.rack(nodes, spec))

        yield make


@pytest.fixture(scope="module")
def vm_pair(request: pytest.FixtureRequest) -> Iterator[VmLab]:
    """Two virtual machines, vm1 and vm2, with docker and the user `ops`, for all tests of a file.

    A test leaves them as it found them, but for the kernel's command line and boot id. One that needs vm1 alone says
    so: `@pytest.mark.parametrize("vm_pair", [1], indirect=True)`.
    """
    with vms(getattr(request, "param", 2), NodeSpec(user="ops", sudo=True)) as machines:
        yield machines


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What each file and each kind of node took, start and end of the nodes included: seconds of work, and seconds from
    the first start to the last end, in which other files ran as well."""
    parts: dict[str, list[pytest.TestReport]] = defaultdict(list)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and report.nodeid.startswith("tests/lab/"):
                file = report.nodeid.split("::")[0]
                for part in (file, _kind(file), "the whole lab"):
                    parts[part].append(report)
    if parts:
        terminalreporter.section("seconds per part of the lab: of work, from start to end")
        for part, reports in sorted(parts.items(), key=lambda item: (not item[0].startswith("tests/"), item[0])):
            work = sum(report.duration for report in reports)
            span = max(report.stop for report in reports) - min(report.start for report in reports)
            terminalreporter.write_line(f"{work:8.1f} {span:8.1f}  {part}")


def _kind(file: str) -> str:
    name = Path(file).stem
    if "vm" in name:
        return "virtual machines"
    if "workload" in name:
        return "no nodes"
    return "namespace nodes"
