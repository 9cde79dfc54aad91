"""What fails a host, and the words for it: a change that is not there afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.api.command import FunctionCommand, StringCommand
from pyinfra.context import ctx_host, ctx_state
from pyinfra_testing.util import FakeState, create_host

from shakedown.jobs.launch import Event, Job
from shakedown.operations import atomic, checkout, dataset, driver, images, reboot, registries, rollback, smoke, venv
from shakedown.operations.atomic import Step
from shakedown.operations.commands import show_change, verify
from shakedown.operations.registries import ADVICE
from shakedown.schedulers.interface import Allocation
from shakedown.state.images import parse
from tests.nodes import launch_plan

COMMIT = "c" * 40
DIGEST = "sha256:" + "a" * 64


class State:
    """The state of a deploy, by which operations keep what counts for all of its hosts."""


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


def test_an_address_of_a_repository_is_no_option_of_git(tmp_path: Path) -> None:
    """git runs what --upload-pack names, and it may stand anywhere among its words."""
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    now = {"kind": "checkout", "head": None, "has_commit": False, "changes": [], "patched_only": False, "error": None}
    asked = {"url": f"--upload-pack=touch {tmp_path}/ran;", "path": str(tmp_path), "commit": COMMIT}
    commands = Node(now).commands(checkout.git, **asked)
    (fetch,) = [text for command in commands if "fetch" in (text := str(getattr(command, "get_raw_value", str)()))]
    done = subprocess.run(["sh", "-c", fetch], capture_output=True, text=True)
    assert done.returncode and not (tmp_path / "ran").exists(), done.stderr


@pytest.mark.parametrize("name", ["%00", "a%0ab", "%2e%2e", "a%1b%5b2J", ".hidden", "x%e2%80%aey"])
def test_no_address_of_a_file_gives_a_name_that_is_none(name: str) -> None:
    node = Node({})
    (refusal,) = node.commands(dataset.download, files=[{"url": f"https://site.example/{name}"}], folder="/data")
    assert not node.run(refusal) and "no name of a file" in node.said[0]


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


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["ro quiet iommu=pt pci=bfsort"], []),
        (["ro quiet iommu=pt"], ["came back without pci=bfsort: does the boot loader have it?"]),
        (["ro"], ["came back without iommu=pt pci=bfsort: does the boot loader have it?"]),
        (None, ["came back without iommu=pt pci=bfsort: does the boot loader have it?"]),
    ],
)
def test_a_node_that_comes_back_without_its_parameters_fails(line: list[str] | None, words: list[str]) -> None:
    files = {reboot.CMDLINE: ["ro"], reboot.BOOT_ID: ["another"]}
    node = Node(files, {reboot.CMDLINE: line})
    assert node.passes(reboot.when_needed, parameters=["iommu=pt", "pci=bfsort"]) == (not words)
    assert node.said == words


def test_a_node_whose_command_line_cannot_be_read_is_rebooted() -> None:
    assert len(Node({reboot.CMDLINE: None}).commands(reboot.when_needed, parameters=["iommu=pt"])) == 2
    assert len(Node({reboot.CMDLINE: ["iommu=pt"]}).commands(reboot.when_needed, parameters=["iommu=pt"])) == 0


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ([DIGEST], []),
        (["sha256:e", DIGEST], []),
        (["sha256:e", "sha256:f"], [f"docker.io/rocm/x:1 is sha256:e, sha256:f after tagging {DIGEST}"]),
        (None, [f"docker.io/rocm/x:1 is not there after tagging {DIGEST}"]),
    ],
)
def test_an_image_that_is_another_after_it_was_tagged_fails(now: list[str] | None, words: list[str]) -> None:
    name = "docker.io/rocm/x"
    node = Node({f"{name}@{DIGEST}": [DIGEST]}, {} if now is None else {f"{name}:1": now})
    assert node.passes(images.pull, reference=f"rocm/x:1@{DIGEST}") == (not words)
    assert node.said == words


FILE = {"url": "https://example.org/a/b.idx?x=1", "sha256": "ab", "size": 3}


@pytest.mark.parametrize(
    ("there", "lacking"),
    [
        ({"b.idx": {"size": 3, "sha256": "ab"}}, False),
        ({"b.idx": {"size": 4, "sha256": "ab"}}, True),
        ({"b.idx": {"size": 3, "sha256": "cd"}}, True),
        ({"c.idx": {"size": 3, "sha256": "ab"}}, True),
    ],
)
def test_a_file_that_is_another_after_the_download_fails(there: dict[str, Any], lacking: bool) -> None:
    assert len(Node(there).commands(dataset.download, files=[FILE], folder="/d")) == (2 if lacking else 0)
    node = Node({}, there)
    assert node.passes(dataset.download, files=[FILE], folder="/d") == (not lacking)
    assert node.said == (["/d: not there after the download: b.idx"] if lacking else [])
    any_of_them = {"url": FILE["url"]}
    assert len(Node(there).commands(dataset.download, files=[any_of_them], folder="/d")) == (
        2 if "c.idx" in there else 0
    )


@pytest.mark.parametrize(
    ("urls", "bad"),
    [
        (["https://e/a", "https://e/x/a"], "a"),
        (["https://e/a", "https://e/"], "none"),
        (["https://e/.a", "https://e/b"], ".a"),
        (["https://e/c", "https://e/b", "https://f/c", "https://f/b"], "b, c"),
    ],
)
def test_a_download_without_a_name_of_its_own_is_refused(urls: list[str], bad: str) -> None:
    node = Node({})
    (command,) = node.commands(dataset.download, files=[{"url": url} for url in urls], folder="/d")
    assert not node.run(command)
    assert node.said == [f"no name of a file, or one that two URLs end in: {bad}"]


PROGRAM = {"image": "i", "command": ["c"], "folder": "/d", "workdir": "/w"}


@pytest.mark.parametrize(
    ("answers", "variables", "words"),
    [
        (["absent", "prepared"], {"A_1": "x", "_": ""}, []),
        (["absent", "half"], {}, ["/d after preparing it: half"]),
        (["other things"], {}, ["/d: other things"]),
        (["other things"], {"1A": ""}, ["/d: other things"]),
        (["absent"], {"1A": "", "B": "", "C-D": "", "É": ""}, ["/d: no names of variables: 1A, C-D, É"]),
    ],
)
def test_a_folder_is_prepared_or_the_host_fails(
    answers: list[str], variables: dict[str, str], words: list[str]
) -> None:
    node = Node(*answers)
    assert node.passes(dataset.prepare, variables=variables, **PROGRAM) == (not words)
    assert node.said == words
    assert Node("prepared").commands(dataset.prepare, variables={"1A": ""}, **PROGRAM) == []


@pytest.mark.parametrize(
    ("script", "lines", "words"),
    [
        ("download", ["noise", "space: 3 GB are free"], f"/d: 3 GB are free: {dataset.ADVICE['space']}"),
        ("download", ["odd: thing", "KeyError: 'x'"], "/d: odd: thing KeyError: 'x'"),
        ("download", [], "/d: "),
        ("download", ["space: 3 GB"], f"/d: 3 GB: {dataset.ADVICE['space']}"),
        ("download", ["a: b", "busy: c", "space: d"], f"/d: d: {dataset.ADVICE['space']}"),
        ("download", ["x" * 400, "y" * 400], f"/d: {'x' * 99} {'y' * 400}"),
        ("prepare", ["space: 3", "GB"], "/d: space: 3 GB"),
        ("prepare", [], "/d: the script printed nothing"),
        ("prepare", ["x" * 900, "y" * 400], f"/d: {'x' * 599} {'y' * 400}"),
    ],
)
def test_a_script_that_fails_is_reported_by_its_end(
    monkeypatch: pytest.MonkeyPatch, script: str, lines: list[str], words: str
) -> None:
    limits: list[float] = []

    def run_script(_host: Any, name: str, _document: Any, show: bool, limit_s: float) -> tuple[bool, Any]:
        assert name == f"{script}.py"
        limits.append(limit_s)
        return not limits[1:], SimpleNamespace(stderr_lines=lines)

    monkeypatch.setattr(dataset, "run_script", run_script)
    node = Node({})
    state: Any = SimpleNamespace(print_output=False)
    work = {"download": dataset._download, "prepare": dataset._prepare}[script]
    document = {"folder": "/d", "timeout_s": 50}
    assert work(state, node.host, document) and not node.said
    assert not work(state, node.host, document) and node.said == [words]
    assert limits == [350, 350]


@pytest.mark.parametrize(
    ("lines", "registry", "words"),
    [
        ([], "registry.lab", "registry.lab/a/x:1: "),
        (["odd"], "registry.lab", "registry.lab/a/x:1: odd"),
        (["one", "odd: two"], "mirror.lab", "registry.lab/a/x:1 (by mirror.lab): one odd: two"),
        (["one", "space: two"], "registry.lab", f"registry.lab/a/x:1 was not pulled: two: {ADVICE['space']}"),
        (["space: two"], "mirror.lab", f"registry.lab/a/x:1 (by mirror.lab) was not pulled: two: {ADVICE['space']}"),
        (["x" * 400, "y" * 400], "registry.lab", f"registry.lab/a/x:1: {'x' * 99} {'y' * 400}"),
    ],
)
def test_a_pull_that_fails_is_reported_with_its_source(lines: list[str], registry: str, words: str) -> None:
    assert registries._explained(parse("registry.lab/a/x:1"), lines, registry) == words


def test_a_command_of_a_job_has_its_limit_and_some_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[Any] = []

    class Timeout:
        def __init__(self, seconds: float, error: Exception) -> None:
            limits.extend((seconds, str(error)))

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            pass

    def run_shell_command(command: Any, **given: Any) -> tuple[bool, Any]:
        limits.extend((command.get_raw_value(), given))
        return True, SimpleNamespace(stdout_lines=["out"], stderr_lines=["err"])

    monkeypatch.setattr(smoke.gevent, "Timeout", Timeout)
    host: Any = SimpleNamespace(connector=None, run_shell_command=run_shell_command)
    remote = smoke.Remote({"a": host}, {"a": {"_sudo": True, "_stdin": "x", "_timeout": 1, "name": "n"}})
    assert remote("a", ["echo", "a b"], "in", 5) == (0, ["out"], ["err"])
    given = {"print_output": False, "print_input": False, "_stdin": "in", "_timeout": 8.0, "_sudo": True}
    assert limits == [8.0, "no answer within 5 s", "timeout -k 2 5 echo 'a b'", given]
    assert remote("b", [], None, 5) == (None, [], ["b is not among the active hosts"])


@pytest.mark.parametrize(
    ("connector", "gone"),
    [
        (SimpleNamespace(), False),
        (SimpleNamespace(client=None), False),
        (SimpleNamespace(client=SimpleNamespace(get_transport=lambda: None)), True),
        (SimpleNamespace(client=SimpleNamespace(get_transport=lambda: SimpleNamespace(is_active=lambda: False))), True),
        (SimpleNamespace(client=SimpleNamespace(get_transport=lambda: SimpleNamespace(is_active=lambda: True))), False),
    ],
)
def test_only_a_connection_that_was_there_can_be_gone(connector: Any, gone: bool) -> None:
    host: Any = SimpleNamespace(connector=connector)
    assert smoke.connection_is_gone(host) == gone


@pytest.mark.parametrize(
    ("signalled", "reason"),
    [
        ([signal.SIGINT], "stopped by Ctrl-C"),
        ([signal.SIGTERM], "stopped by SIGTERM"),
        ([signal.SIGHUP], "stopped by the terminal is gone (SIGHUP)"),
        ([], None),
    ],
)
def test_the_first_signal_is_why_a_job_is_stopped(signalled: list[int], reason: str | None) -> None:
    before = [signal.getsignal(number) for number in smoke._SIGNALS]
    with smoke.interrupts() as interrupted:
        for number in signalled:
            signal.raise_signal(number)
        assert interrupted() == reason
    assert [signal.getsignal(number) for number in smoke._SIGNALS] == before


def test_a_second_signal_goes_to_who_took_it_over_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only to a handler of this package, which notes the first: pyinfra's would exit with 0."""
    taken: list[int] = []

    class Handler:
        first = False

        def __call__(self, number: int, _frame: object) -> None:
            taken.append(number)

        def note(self) -> None:
            self.first = True

        def noted(self) -> bool:
            return self.first

    handler = Handler()
    monkeypatch.setattr(smoke.os, "kill", lambda *_: pytest.fail("it has a handler"))
    before = [(number, signal.signal(number, handler)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        with smoke.interrupts() as interrupted:
            assert (interrupted(), handler.first) == (None, False)
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.raise_signal(number)
            assert (interrupted(), handler.first) == ("stopped by Ctrl-C", True) and taken == [signal.SIGTERM]
        with smoke.interrupts() as interrupted:  # of what comes after it: nothing is begun
            assert interrupted() == "stopped by an earlier signal"
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        killed: list[tuple[int, int]] = []
        monkeypatch.setattr(smoke.os, "kill", lambda *given: killed.append(given))
        with smoke.interrupts():
            for _ in range(2):
                signal.raise_signal(signal.SIGTERM)
            assert (killed, signal.getsignal(signal.SIGTERM)) == ([(os.getpid(), signal.SIGTERM)], signal.SIG_DFL)
    finally:
        for number, prior in before:
            signal.signal(number, prior)
    assert taken == [signal.SIGTERM]


@pytest.mark.parametrize(
    ("results", "tag", "looks", "passed", "pulled", "logged"),
    [
        ([None], ":v1", False, True, "m", []),
        (["transport", None], ":v1", False, True, "mr", ["yellow"]),
        (["unknown", "space"], ":v1", False, False, "mr", ["yellow", "red"]),
        (["space"], ":v1", False, False, "m", ["red"]),
        (["transport", "transport"], ":v1", False, False, "mr", ["yellow", "red"]),
        ([None, None], "", False, True, "mr", []),
        ([None, "transport"], "", False, False, "mr", ["red"]),
        ([None], "", True, True, "m", []),
    ],
)
def test_a_source_is_passed_by_only_where_it_is_not_there_or_has_not_the_image(
    monkeypatch: pytest.MonkeyPatch,
    results: list[str | None],
    tag: str,
    looks: bool,
    passed: bool,
    pulled: str,
    logged: list[str],
) -> None:
    sent: list[dict[str, Any]] = []
    styles: list[str] = []

    def run_script(_host: Any, _script: str, document: dict[str, Any], show: bool, limit_s: float) -> tuple[bool, Any]:
        assert (show, limit_s) == (not looks, 7300)
        kind = results[len(sent)]
        sent.append(document)
        return kind is None, SimpleNamespace(stderr_lines=[f"{kind}: words"])

    monkeypatch.setattr(registries, "run_script", run_script)
    monkeypatch.setattr(registries, "ask", lambda *_: registries.Manifest(DIGEST, 10))
    image = parse(f"registry.lab/train{tag}@{DIGEST}")
    sources = [registries.Registry("mirror.lab", "train"), registries.Registry("registry.lab", "train")]
    wish = registries.Wish(image, sources, "docker", None, 3, 7000, 60, None)
    host: Any = SimpleNamespace(log_styled=lambda _words, fg, log_func: styles.append(fg))
    state: Any = State()
    assert registries.fetch(state, host, wish, looks) == passed
    assert "".join(document["registry"][0] for document in sent) == pulled
    assert styles == logged
    assert {(one["room_bytes"], one["compressed_bytes"], one["looks"]) for one in sent} == {(40, 10, looks)}
    assert {one["tagged"] for one in sent} == {image.tagged if image.tag else None}
    large = registries.Wish(image, sources, "docker", 100, 3, 7000, 60, None)
    sent.clear()
    registries.fetch(state, host, large, looks)
    assert sent[0]["room_bytes"] == 110


@pytest.mark.parametrize(
    ("engine", "there", "kinds"), [("docker", False, 3), ("docker", True, 1), ("podman", False, 1)]
)
def test_only_docker_needs_a_file_to_trust_a_registry_and_only_where_it_is_another(
    tmp_path: Path, engine: str, there: bool, kinds: int
) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("CERTIFICATE\n")
    path = f"{images.CERTIFICATES}/registry.lab/shakedown.crt"
    files = {path: [atomic.HEADER, "CERTIFICATE"]} if there else {path: ["other"]}
    for reference in ("registry.lab/x:1", f"registry.lab/x:1@{DIGEST}", f"registry.lab/x@{DIGEST}"):
        node = Node({}, files)
        assert len(node.commands(images.pull, reference=reference, engine=engine, ca_file=str(authority))) == kinds


@pytest.mark.parametrize(("times", "came_back"), [([0, 7, 8], False), ([0, 7, 8, 9], False), ([0, 7.9], True)])
def test_a_node_has_until_its_deadline_and_no_attempt_more(
    monkeypatch: pytest.MonkeyPatch, times: list[float], came_back: bool
) -> None:
    clock, answers = list(times), ["before", "after"] if not came_back else ["after"]
    monkeypatch.setattr(reboot, "monotonic", lambda: clock.pop(0))
    monkeypatch.setattr(reboot, "_ask_anew", lambda _host: answers.pop(0))
    monkeypatch.setattr(reboot, "INTERVAL_S", 0)
    host: Any = None
    assert reboot._came_back(host, "before", 8) == came_back
    assert answers == ([] if came_back else ["after"])


@pytest.mark.parametrize(
    "given", [None, {}, {"_sudo": True, "_shell_executable": "sh", "name": "n", "_run_once": True}]
)
def test_commands_take_the_user_of_their_operation(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any] | None
) -> None:
    monkeypatch.setattr(atomic, "connector_arguments", lambda _host: {"_su_user": "root"})
    host: Any = SimpleNamespace(current_op_global_arguments=given)
    wanted = {"_sudo": True, "_shell_executable": "sh"} if given else {"_su_user": "root"}
    assert atomic.connector(host) == wanted


class Place:
    """Where jobs run. `ended`: how it was given back."""

    def __init__(self) -> None:
        self.ended: list[bool] = []

    def end(self, cancel: bool) -> None:
        self.ended.append(cancel)


@pytest.mark.parametrize("signalled", [False, True])
def test_the_first_active_host_drives_the_jobs_of_the_hosts_that_are_there(
    monkeypatch: pytest.MonkeyPatch, signalled: bool
) -> None:
    class Host(SimpleNamespace):
        __hash__ = object.__hash__

    hosts: list[Any] = [Host(name=name, executing_op_hash="op") for name in "abcd"]

    class Inventory(list[Any]):
        def get_active_hosts(self) -> list[Any]:
            return hosts[1:]

    state: Any = SimpleNamespace(
        inventory=Inventory(hosts), ops={host: {"op"} for host in hosts[:3]} | {hosts[3]: set()}
    )
    jobs: list[Any] = [SimpleNamespace(node=node) for node in (None, "a", "b", "c", "d")]
    carried: list[list[str | None]] = []

    def carry_out(some: list[Any], _where: Any, _interrupted: Any) -> None:
        carried.append([job.node for job in some])
        if signalled:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(smoke, "carry_out", carry_out)
    place: Any = Place()
    for host in hosts[1:3]:
        assert smoke._drive(state, host, jobs, place)
        assert carried == [[None, "b", "c"]] and place.ended == [signalled], host.name


@pytest.mark.parametrize(
    ("planned", "allocated", "event"),
    [(False, True, "not started: no"), (True, False, "not started: no"), (True, True, "no result: no")],
)
def test_a_job_without_a_result_reports_whether_it_was_started(planned: bool, allocated: bool, event: str) -> None:
    events: list[Any] = []
    job: Any = SimpleNamespace(plan=planned or None, allocated=allocated, node="a", on_event=events.append)
    smoke._note_error(job, ValueError("no"))
    assert (job.error, events) == ("no", [Event("end", event, "a")])
    smoke._note_error(job, ValueError())
    assert job.error == "ValueError"


def test_a_job_that_can_no_longer_be_planned_does_not_run_by_an_old_plan(tmp_path: Path) -> None:
    """A deploy may hand it to a second run, after which a node is gone."""

    class Nodes(Allocation):
        def allocate(self, *_: Any) -> None:
            raise AssertionError("nodes are asked for")

    def refuse() -> Any:
        raise ValueError("node2 is gone")

    job = Job(refuse, tmp_path, plan=launch_plan({"node1": ["true"]}))
    smoke.carry_out([job], Nodes(), lambda: None)
    assert (job.error, job.result) == ("node2 is gone", None)
