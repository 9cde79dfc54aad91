"""Small decisions of operations that a larger test passes by: words of a refusal, limits, comparisons afterwards."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.context import ctx_host, ctx_state
from pyinfra_testing.util import FakeState

from shakedown.operations import atomic, dataset, engine, images, patch, provider, registries, rollback, tuning, venv
from shakedown.operations.atomic import Step
from shakedown.operations.registries import Manifest, Registry, Wish
from shakedown.state.images import parse
from tests.unit.test_operations_outcome import Node, State


@pytest.mark.parametrize("same", [True, False])
def test_a_provider_library_passes_with_the_digest_that_was_uploaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    monkeypatch.setattr(provider, "_unfit", lambda path: "")
    source, path = tmp_path / "lib.so", "/usr/local/lib/libbnxt_re-rdmav34.so"
    source.write_bytes(b"library")
    wanted = hashlib.sha256(b"library").hexdigest()
    node = Node({}, {path: wanted if same else "0" * 64})
    assert node.passes(provider.library, source=str(source), path=path) is same
    assert same or f"has sha256 {'0' * 64} after the upload of {wanted}" in node.said[-1]


@pytest.mark.parametrize(
    ("nr_open", "refused"), [([], False), (["0"], False), (["1048576"], True), (["4194304"], False)]
)
def test_a_limit_is_refused_above_what_the_kernel_is_known_to_allow(nr_open: list[str], refused: bool) -> None:
    node = Node({tuning.NR_OPEN: nr_open})
    first = node.commands(tuning.limits, nofile=2097152)[0]
    assert (getattr(first, "function", None) is not None and "nr_open" in str(getattr(first, "args", ""))) is refused


def test_a_restored_setting_is_compared_with_what_its_file_holds_now(monkeypatch: pytest.MonkeyPatch) -> None:
    host = SimpleNamespace(get_fact=lambda _fact, patterns: {patterns[0]: ["[always] madvise never"], patterns[1]: []})
    monkeypatch.setattr(rollback, "host", host)
    steps = [Step(kind="file", target=path, value="1") for path in ("/sys/a", "/sys/b")]
    assert rollback._now(steps) == {"/sys/a": "always", "/sys/b": ""}


@pytest.mark.parametrize("tag", [":v1", f"@sha256:{'1' * 64}"])
def test_each_source_gives_the_image_the_tag_that_it_has_in_the_inventory(
    monkeypatch: pytest.MonkeyPatch, tag: str
) -> None:
    sent: list[dict[str, Any]] = []

    def run_script(host: Any, script: str, document: dict[str, Any], **_how: Any) -> tuple[bool, Any]:
        sent.append(document)
        return len(sent) > 1, SimpleNamespace(stderr_lines=["transport: no way"])

    monkeypatch.setattr(registries, "run_script", run_script)
    image = parse(f"registry.lab/train{tag}")
    sources = [Registry("mirror.lab", "train"), Registry("registry.lab", "train")]
    wish = Wish(image, sources, "docker", None, 3, 60, 60, None)
    host: Any = SimpleNamespace(name="a", log_styled=lambda words, **_how: None)
    state: Any = State()
    monkeypatch.setattr(registries, "ask", lambda *_arguments: Manifest("sha256:" + "1" * 64, 5))
    assert registries.fetch(state, host, wish)
    named = image.tagged if image.tag else None
    assert [document["tagged"] for document in sent] == [named, named]


@pytest.mark.parametrize("done", [True, False])
def test_a_file_that_was_not_placed_fails_the_host_with_the_scripts_words(
    monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    output = SimpleNamespace(stderr_lines=["/etc/x: another user could redirect it"])
    monkeypatch.setattr(atomic, "run_script", lambda *_, **__: (done, output))
    node = Node({})
    state: Any = SimpleNamespace(print_input=False)
    with ctx_state.use(FakeState()), ctx_host.use(node.host):
        assert atomic.on_node(state, node.host, {"do": "folder", "path": "/etc/x"}) is done
    assert ("another user could redirect it" in " ".join(node.said)) is not done


@pytest.mark.parametrize(("error", "words"), [("git: bad object", "git: bad object"), ("", "no git checkout")])
def test_a_patch_is_refused_with_what_git_says_of_the_checkout(tmp_path: Path, error: str, words: str) -> None:
    file = tmp_path / "fix.patch"
    file.write_text("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n")
    node = Node({"error": error, "kind": "none", "patched_only": False, "patches": []})
    assert not node.passes(patch.apply, path="/opt/megatron", patch_file=str(file))
    assert words in node.said[-1]


@pytest.mark.parametrize(("ours", "kept"), [(True, True), (False, True), (True, False)])
def test_a_patch_counts_as_applied_by_its_record_where_nothing_else_changed(
    tmp_path: Path, ours: bool, kept: bool
) -> None:
    """A later patch of the same lines hides the first from git. What others changed, the record cannot vouch for."""
    file = tmp_path / "fix.patch"
    file.write_text("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n")
    patches = [hashlib.sha256(file.read_bytes()).hexdigest()] if kept else []
    checkout = {"error": None, "kind": "checkout", "patched_only": ours, "patches": patches}
    node = Node(checkout, ["rejected", "error: patch failed: x:1"])
    commands = node.commands(patch.apply, path="/opt/megatron", patch_file=str(file))
    assert (commands == []) is (ours and kept)
    assert not commands or (not node.run(commands[-1]) and "does not apply" in node.said[-1])


@pytest.mark.parametrize("digests", [{"/opt/r.txt": "d" * 64}, {}])
def test_requirements_count_by_what_the_node_has_in_them(digests: dict[str, str]) -> None:
    steps = [{"requirements": "/opt/r.txt"}]
    there = {"kind": "venv", "digest": venv.request_digest(steps, digests, None, "python3")}
    node = Node(digests, there)
    commands = node.commands(venv.install, path="/opt/venv", steps=steps)
    assert digests or (not node.run(commands[0]) and "no such file of requirements: /opt/r.txt" in node.said[-1])
    assert not digests or commands == []
    assert Node(there | {"digest": ""}).commands(venv.install, path="/opt/venv", steps=[{"packages": ["torch"]}])[1:]


def test_a_download_has_its_own_time_limit_and_the_time_to_clean_up(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []

    def run_script(*_: Any, limit_s: float, **__: Any) -> tuple[bool, Any]:
        limits.append(limit_s)
        return True, SimpleNamespace(stderr_lines=[])

    monkeypatch.setattr(dataset, "run_script", run_script)
    host: Any = SimpleNamespace()
    state: Any = State()
    assert dataset._download(state, host, {"timeout_s": 1000})
    assert limits == [1000 + dataset.SLACK_S]


@pytest.mark.parametrize(
    ("head", "right"),
    [
        (b"\x7fELF\x02\x01" + bytes(12) + b"\x3e\x00", True),
        (b"\x7fELF\x02\x01" + bytes(12) + b"\xb7\x00", False),  # of an ARM machine
        (bytes(18) + b"\x3e\x00", False),
        (b"", False),
    ],
)
def test_only_a_library_of_the_nodes_machine_is_sent(tmp_path: Path, head: bytes, right: bool) -> None:
    (tmp_path / "lib.so").write_bytes(head)
    assert (provider._unfit(tmp_path / "lib.so") is None) is right


def test_each_step_on_a_node_names_what_it_works_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(atomic, "run_script", lambda *_, **__: (True, SimpleNamespace(stderr_lines=[])))
    host: Any = SimpleNamespace(print_prefix="")
    state: Any = SimpleNamespace(print_input=True)
    for document in ({"path": "/a"}, {"folder": "/b"}, {"paths": ["/c", "/d"]}):
        atomic.on_node(state, host, {"do": "keep", **document})
    shown = [line.split("keep ")[1] for line in capsys.readouterr().err.splitlines()]
    assert shown == ["/a", "/b", "/c /d"]


@pytest.mark.parametrize(("lines", "words"), [(["y" * 400, "cannot write"], "cannot write"), ([], "printed nothing")])
def test_a_data_set_that_was_not_prepared_says_why(
    monkeypatch: pytest.MonkeyPatch, lines: list[str], words: str
) -> None:
    monkeypatch.setattr(dataset, "run_script", lambda *_, **__: (False, SimpleNamespace(stderr_lines=lines)))
    node = Node({})
    state: Any = SimpleNamespace(print_output=False)
    with ctx_state.use(FakeState()), ctx_host.use(node.host):
        assert not dataset._prepare(state, node.host, {"timeout_s": 1000, "folder": "/data/x"})
    assert words in node.said[-1] and "/data/x" in node.said[-1]


@pytest.mark.parametrize(("held", "words"), [([], "is not there"), (["sha256:b"], "is sha256:b"), (["sha256:a"], "")])
def test_a_tag_that_leads_elsewhere_after_a_pull_fails_the_host(held: list[str], words: str) -> None:
    node = Node({"registry.lab/train:v1": held})
    with ctx_host.use(node.host):
        reason = images._lacking(parse("registry.lab/train:v1"), "sha256:a", "docker")
    assert (words in reason) if reason else not words


def test_what_another_person_installs_meanwhile_is_not_recorded_as_the_engine_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The packages are new beside ours, but in another transaction of the package manager."""
    lists = iter([["bash"], ["bash", "docker.io", "containerd", "nmap"]])

    def get_fact(fact: Any, **_arguments: Any) -> Any:
        answers = {"Tools": dict, "Transaction": lambda: ["docker.io", "containerd", "iptables"]}
        return answers[fact.__name__]() if fact.__name__ in answers else next(lists)

    monkeypatch.setattr(engine, "host", SimpleNamespace(get_fact=get_fact))
    monkeypatch.setattr(
        engine, "import_module", lambda _name: SimpleNamespace(packages=SimpleNamespace(_inner=lambda **_options: []))
    )
    monkeypatch.setattr(engine, "remember", lambda _name, steps, once=True: steps)
    monkeypatch.setattr(engine.services.running, "_inner", lambda **_names: [])
    first, last, _ = engine.installed._inner(engine="docker", package="docker.io", manager="apt")
    assert [step.value for step in (*first, *last)] == ["apt docker.io", "apt containerd docker.io"]
