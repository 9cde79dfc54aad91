"""What fails a host, and the words for it: a job that has not completed, a change that is not there afterwards."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.command import FunctionCommand, StringCommand
from pyinfra.context import ctx_host, ctx_state
from pyinfra_testing.util import FakeState, create_host

from shakedown.evidence.results import JobResult, Outcome
from shakedown.jobs.job import Job
from shakedown.operations import checkout, driver, rollback, smoke, venv
from shakedown.operations.commands import show_change, verify
from shakedown.operations.record import Step

COMMIT = "c" * 40


class Node:
    """A node with the answers to its facts, the last of them for good; `said`: why it failed."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.said: list[str] = []
        self.host = create_host(FakeState(), facts={})
        self.host.get_fact = lambda *_, **__: self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.host.log_styled = lambda message, **_: self.said.append(message)

    def passes(self, operation: Any, **arguments: Any) -> bool:
        """Whether the last command of an operation, its check of the node afterwards, passes the host."""
        return self.run(self.commands(operation, **arguments)[-1])

    def commands(self, operation: Any, **arguments: Any) -> list[Any]:
        """What an operation would do there."""
        with ctx_state.use(FakeState()), ctx_host.use(self.host):
            return list(operation._inner(**arguments))

    def run(self, command: FunctionCommand) -> bool:
        with ctx_state.use(FakeState()), ctx_host.use(self.host):
            return bool(command.function(None, self.host, *command.args))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(make_plan=lambda: pytest.fail("it is not run"), log_dir=tmp_path)


def result(outcome: Outcome) -> JobResult:
    return JobResult(
        run_id="r", outcome=outcome, reason="node02: exit code 1", first_failure=None, failures=[], nodes=[],
        last_iteration=None, started_at=None, finished_at=datetime(2026, 11, 28, tzinfo=UTC),
    )  # fmt: skip


@pytest.mark.parametrize("outcome", ["failed", "interrupted", "not started"])
def test_a_job_that_has_not_completed_fails_the_host_with_its_reason(job: Job, outcome: Outcome) -> None:
    job.result = result(outcome)
    node = Node({})
    assert not node.passes(smoke.require, job=job)
    assert node.said == ["smoke run: node02: exit code 1"]


def test_a_job_that_never_ran_fails_the_host(job: Job) -> None:
    node = Node({})
    assert not node.passes(smoke.require, job=job)
    job.error = "no port is free"
    assert not node.passes(smoke.require, job=job)
    assert node.said == ["smoke run: the job was never run", "smoke run: no port is free"]


def test_a_job_that_has_completed_passes_the_host(job: Job) -> None:
    job.result = result("completed")
    node = Node({})
    assert node.passes(smoke.require, job=job)
    assert not node.said


def test_a_host_fails_only_where_something_is_wrong_after_the_change() -> None:
    node = Node({})
    assert node.run(verify(lambda: None))
    assert not node.run(verify(lambda: "still 1"))
    assert node.said == ["still 1"]


def test_a_module_that_did_not_come_back_fails_the_host() -> None:
    state = "/sys/module/{}/initstate"
    live = {state.format(module): ["live"] for module in ("amdgpu", "amd_other")}
    came_back = Node(live)
    assert came_back.passes(driver.reload, modules=["amdgpu", "amd_other"])
    assert not came_back.said
    lost = Node(live, {state.format("amd_other"): ["live"]})
    assert not lost.passes(driver.reload, modules=["amdgpu", "amd_other"])
    assert lost.said == ["amdgpu: not there after it was loaded again (dmesg)"]


def test_a_checkout_that_is_elsewhere_afterwards_fails_the_host() -> None:
    before = {"kind": "checkout", "head": "d" * 40, "has_commit": True, "changes": [], "patched_only": False}
    before |= {"patches": [], "error": None}
    asked = {"url": "https://example.org/m", "path": "/opt/m", "commit": COMMIT}
    assert Node(before, before | {"head": COMMIT}).passes(checkout.git, **asked)
    node = Node(before)
    assert not node.passes(checkout.git, **asked)
    assert node.said == [f"/opt/m is at {'d' * 40} after the checkout of {COMMIT}"]


@pytest.fixture
def with_diff() -> Iterator[list[str]]:
    """What a run with --diff logs."""
    state = FakeState()
    state.config.DIFF = True
    logged: list[str] = []
    host = create_host(state, facts={})
    host.log = lambda message, *_: logged.append(message)
    with ctx_state.use(state), ctx_host.use(host), pytest.MonkeyPatch.context() as patch:
        patch.setattr("shakedown.operations.commands.logger.info", lambda text, *args: logged.append(text % args))
        yield logged


@pytest.mark.parametrize(("before", "verb", "gone"), [(None, "create", False), (["a = 1"], "modify", True)])
def test_a_diff_shows_what_goes_and_what_comes(
    with_diff: list[str], before: list[str] | None, verb: str, gone: bool
) -> None:
    show_change("/etc/x.conf", before, ["a = 2"])
    text = "\n".join(with_diff)
    assert (f"Will {verb}" in text, "- a = 1" in text, "+ a = 2" in text) == (True, gone, True), text


def test_records_of_one_setting_are_restored_under_its_name() -> None:
    """The name of a file has no `/` in it, and only stands in for a setting that its record does not name."""
    restore = [{"kind": "parameter", "target": "iommu=pt", "value": ""}]
    told = json.dumps({"setting": "limits of a/b", "restore": restore})
    untold = json.dumps({"restore": restore})
    settings, broken = rollback._settings({"limits of a_b.json": told, "thp.json": untold})
    step = Step("parameter", "iommu=pt")
    assert (settings, broken) == ({"limits of a/b": [step], "thp": [step]}, [])


@pytest.mark.parametrize(
    ("was", "commands"),
    [
        ("", "systemctl disable irq.service && systemctl stop irq.service"),
        ("active", "systemctl disable irq.service"),
        ("enabled", "systemctl stop irq.service"),
        ("active enabled", "true"),
    ],
)
def test_a_service_is_stopped_or_disabled_only_as_it_was(was: str, commands: str) -> None:
    assert rollback.UNDO["service"](Step("service", "irq.service", was)).get_raw_value() == commands


REMOVES = """#!/bin/sh
# As dpkg and rpm remove: not what another package needs, and rpm not what is not there.
[ "$1" != --query ] || { [ -e "$2" ]; exit $?; }
shift
code=0
for p; do
    [ -e "$p" ] || { [ "${0##*/}" = dpkg ] || code=1; continue; }
    if grep -qx "$p" *; then code=1; echo "$p is needed" >&2; else rm "$p"; fi
done
exit $code
"""


@pytest.mark.parametrize(("manager", "tool"), [("apt", "dpkg"), ("dnf", "rpm")])
@pytest.mark.parametrize(
    ("there", "running", "left", "code"),
    [
        ({"podman": "conmon", "conmon": "crun", "crun": "", "bash": ""}, "", {"bash"}, 0),
        ({"podman": "conmon", "conmon": "crun", "crun": "", "k8s": "crun"}, "", {"crun", "k8s"}, 0),
        ({"bash": ""}, "", {"bash"}, 0),
        ({"podman": "", "crun": "", "ui": "podman"}, "", {"podman", "ui"}, 1),
        ({"podman": "crun", "crun": ""}, "4f2a", {"podman", "crun"}, 1),
    ],
    ids=["all", "needed since", "gone before", "the engine is needed", "containers run"],
)
def test_only_packages_that_came_with_the_engine_are_removed(
    tmp_path: Path, manager: str, tool: str, there: dict[str, str], running: str, left: set[str], code: int
) -> None:
    tools, packages = tmp_path / "tools", tmp_path / "packages"
    for folder in (tools, packages):
        folder.mkdir()
    for name, text in ((tool, REMOVES), ("podman", f"#!/bin/sh\necho {running}\n")):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    for name, needed in there.items():
        (packages / name).write_text(f"{needed}\n")
    step = Step("package", "podman", f"{manager} podman crun conmon")
    assert rollback._fits(step)
    script = f"set -e; {rollback.UNDO['package'](step).get_raw_value()}"
    environment = {"PATH": f"{tools}:{os.environ['PATH']}"}
    ran = subprocess.run(["sh", "-c", script], cwd=packages, env=environment, capture_output=True, text=True)
    assert ({path.name for path in packages.iterdir()}, ran.returncode) == (left, code), ran.stderr
    assert not code or "podman" in ran.stderr


@pytest.mark.parametrize("value", ["apt", "apt $(id)", "zypper podman", "apt -f", "apt a;b"])
def test_a_record_of_packages_that_could_mean_anything_else_is_refused(value: str) -> None:
    assert not rollback._fits(Step("package", "podman", value))


@pytest.mark.parametrize(("kind", "made"), [("absent", True), ("venv", False)])
def test_an_environment_is_made_only_where_there_is_none(kind: str, made: bool) -> None:
    commands = Node({"kind": kind}).commands(venv.install, path="/opt/v", steps=[{"packages": ["yaml"]}])
    texts = [command.get_raw_value() for command in commands if isinstance(command, StringCommand)]
    assert (texts[0] == "python3 -I -m venv /opt/v", len(texts)) == (made, 3 if made else 2), texts
