"""The bundle on a node: verified before it runs, replaced when it is not whole, tidy behind itself."""

from __future__ import annotations

import ast
import json
import os
import pwd
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from shakedown.transport import bundle
from shakedown.transport.program import program
from tests.machine_state import machine_home

NODE = Path(bundle.__file__).parents[1] / "node"


def _python(minor: int) -> str | None:
    """Return a Python of this version that starts: without its home a version manager's shim has nothing behind it."""
    found = [
        *map(str, machine_home().glob(f".pyenv/versions/3.{minor}.*/bin/python3")),
        shutil.which(f"python3.{minor}"),
    ]
    return next(
        (path for path in found if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0), None
    )


PYTHONS = {minor: _python(minor) for minor in range(6, 14)}


@pytest.fixture
def node(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs a command of the bundle as it would run on a node whose home is `tmp_path`.

    The home comes from the password database, so the script's question to it is answered here.
    """

    def run(command: str, stdin: str = "") -> dict[str, Any]:
        assert "pwd.getpwuid(os.geteuid()).pw_dir" in command
        command = command.replace("pwd.getpwuid(os.geteuid()).pw_dir", json.dumps(str(tmp_path)).replace('"', '\\"'))
        done = subprocess.run(["sh", "-c", command], input=stdin, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    return run


def install(node: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return node(bundle.install_command(), bundle.build().archive)


@pytest.fixture
def installed(node: Callable[..., dict[str, Any]], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the bundle: installed once, and a copy for each test."""
    whole = tmp_path_factory.getbasetemp() / "installed"
    if not whole.exists():
        install(node)
        (tmp_path / ".cache").rename(whole)
    shutil.copytree(whole, tmp_path / ".cache", symlinks=True)
    return tmp_path


def cached(home: Path) -> Path:
    (folder,) = (path for path in (home / ".cache/shakedown").iterdir() if path.is_dir())
    return folder


def test_what_is_asked_for_is_read_in_the_same_command(node: Callable[..., dict[str, Any]]) -> None:
    """By whoever runs it first, and by whoever finds it there."""
    asked = ("sysctl.kernel.panic", "sysctl.kernel.no_such.key")
    first = node(bundle.install_command(requested=asked), bundle.build().archive)
    for state in (first, node(bundle.launch_command(requested=asked))):
        assert state["sysctl"]["kernel.panic"]["running"] == Path("/proc/sys/kernel/panic").read_text().strip()
        assert state["sysctl"]["kernel.no_such.key"]["running"]["unreadable"] == "missing"
    assert "kernel.panic" not in node(bundle.launch_command())["sysctl"]


def test_first_missing_then_found(node: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    assert node(bundle.launch_command()) == {"shakedown_bundle": "missing"}
    assert not (tmp_path / ".cache").exists(), "looking leaves nothing behind"
    assert install(node)["probe"]["version"] == bundle.build().digest
    before = sorted(path for path in tmp_path.rglob("*"))
    assert node(bundle.launch_command())["probe"]["version"] == bundle.build().digest
    assert sorted(path for path in tmp_path.rglob("*")) == before, "a run leaves nothing behind"
    assert cached(tmp_path).stat().st_mode & 0o777 == 0o700


def test_a_second_controller_leaves_the_first_one_s_folder_in_its_place(
    node: Callable[..., dict[str, Any]], installed: Path
) -> None:
    """Both found none a moment ago, and the first one's probe still imports from it."""
    before = cached(installed).stat()
    assert "probe" in install(node)
    assert (cached(installed).stat().st_ino, cached(installed).stat().st_ctime_ns) == (
        before.st_ino,
        before.st_ctime_ns,
    )


def sources(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.py")}


TAMPER: dict[str, Callable[[Path], Any]] = {
    "source": lambda folder: (folder / "shakedown/node/pci.py").write_text("print('mine')"),
    "library": lambda folder: next((folder / "psutil").glob("*.so")).write_bytes(b"\x7fELF"),
    "byte code": lambda folder: next((folder / "shakedown/node/__pycache__").iterdir()).write_bytes(b"mine"),
    "a package's byte code": lambda folder: next((folder / "pyudev/__pycache__").iterdir()).write_bytes(b"mine"),
    "one file more": lambda folder: (folder / "shakedown/node/json.py").write_text("print('mine')"),
    "one file less": lambda folder: (folder / "shakedown/node/kernel_words.json").unlink(),
    "cut short": lambda folder: os.truncate(folder / "shakedown/node/rdma.py", 100),
    "open to others": lambda folder: folder.chmod(0o777),
    "no seal": lambda folder: (folder / "SEAL").unlink(),
}


@pytest.mark.parametrize("how", sorted(TAMPER))
def test_a_changed_bundle_is_refused_and_replaced(
    node: Callable[..., dict[str, Any]], installed: Path, how: str
) -> None:
    before = sources(cached(installed))
    TAMPER[how](cached(installed))
    assert node(bundle.launch_command()) == {"shakedown_bundle": "missing"}
    install(node)
    folder = cached(installed)  # one folder, and no other
    assert sources(folder) == before
    if how == "source":  # what was installed over another is found like any
        assert "probe" in node(bundle.launch_command())


def test_sources_are_compiled_when_they_are_installed_and_never_looked_at_again(installed: Path) -> None:
    """Compiling costs more than a check may; comparing byte code with its source was done by whoever sealed both."""
    folder = cached(installed)
    for source in folder.rglob("*.py"):
        (code,) = source.parent.glob(f"__pycache__/{source.stem}.*.pyc")
        assert int.from_bytes(code.read_bytes()[4:8], "little") == 0b01, "unchecked, by PEP 552"


def changed_unseen(path: Path) -> None:
    """Another content, with the size and the times of the old one."""
    info = path.stat()
    path.write_bytes(path.read_bytes()[:-1] + b"#")
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


def test_a_file_that_was_changed_behind_its_times_is_found(node: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    install(node)
    changed_unseen(cached(tmp_path) / "shakedown/node/pci.py")
    assert node(bundle.launch_command()) == {"shakedown_bundle": "missing"}


NOBODY = pwd.getpwnam("nobody").pw_uid


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's files")
@pytest.mark.parametrize(
    ("where", "how"),
    [("", "0777"), ("", "0775"), ("", "another's"), (".cache", "another's"), (".cache/shakedown", "0775")],
)
def test_where_others_can_write_nothing_is_kept_and_nothing_of_theirs_is_run(
    node: Callable[..., dict[str, Any]], installed: Path, tmp_path: Path, where: str, how: str
) -> None:
    """A folder that is sealed and was ours a moment ago may be another's the next: only its place is proof."""
    if how == "another's":
        os.chown(tmp_path / where, NOBODY, NOBODY)
    else:
        os.chown(tmp_path / where, -1, 1)
        (tmp_path / where).chmod(int(how, 8))
    assert node(bundle.launch_command()) == {"shakedown_bundle": "missing"}
    folder = cached(tmp_path)
    before = folder.stat().st_ino
    assert "probe" in install(node), "it runs from a folder for this one time"
    assert cached(tmp_path).stat().st_ino == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's files")
def test_a_link_in_the_place_of_the_cache_leads_nowhere_else(
    node: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    (tmp_path / ".cache").symlink_to(theirs)
    assert "probe" in install(node)
    assert list(theirs.rglob("*.py")) == []


def test_a_home_behind_a_link_of_root_s_is_as_good_as_any(node: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / ".cache").symlink_to("disk")
    install(node)
    assert "probe" in node(bundle.launch_command())


def test_what_arrives_damaged_is_not_kept(node: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    archive = bundle.build().archive
    assert "damaged" in node(bundle.install_command(), archive[: len(archive) // 2])["shakedown_bundle"]
    other = bundle.Bundle({"shakedown/__init__.py": b""}, bundle.build().digest).archive
    assert node(bundle.install_command(), other) == {"shakedown_bundle": "arrived with another digest"}
    assert not (tmp_path / ".cache").exists()


def test_old_versions_of_ours_go_and_nothing_else(node: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    folder = tmp_path / ".cache/shakedown"
    old, recent, foreign = folder / f"{'a' * 64}-cpython-311", folder / f"{'b' * 64}-cpython-311", folder / "notes"
    for path in (old, recent, foreign):
        (path / "sub").mkdir(parents=True)
    for path in (old, foreign):
        os.utime(path, (0, 0))
    install(node)
    assert not old.exists() and recent.exists() and foreign.exists()


def test_a_home_that_cannot_be_written(node: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / ".cache").write_text("a file in the place of the folder")
    assert install(node)["probe"]["version"] == bundle.build().digest
    assert [path.name for path in tmp_path.iterdir()] == [".cache"]


def test_the_same_checkout_makes_the_same_bundle() -> None:
    first = bundle.build()
    bundle.build.cache_clear()
    assert bundle.build() == first and bundle.build().archive == first.archive
    assert bundle.files_digest({**first.files, "x": b""}) != first.digest


def test_a_command_is_one_line_for_any_shell() -> None:
    for command in (bundle.launch_command(), bundle.install_command()):
        assert "\n" not in command and "!" not in command.replace("!=", "")
        assert len(command) < 8192


def test_no_python(node: Callable[..., dict[str, Any]]) -> None:
    command = bundle.launch_command()
    start, end = command.index("in ") + 3, command.index("; do")
    answer = node(command[:start] + "no-such-python" + command[end:])
    assert answer == {"shakedown_bundle": bundle.NO_PYTHON}


@pytest.mark.parametrize("minor", [minor for minor, path in PYTHONS.items() if path])
def test_every_python_of_this_machine(node: Callable[..., dict[str, Any]], tmp_path: Path, minor: int) -> None:
    """3.8 to 3.13 run the probe; an older one is passed over in words."""
    command = bundle.install_command()
    start, end = command.index("in ") + 3, command.index("; do")
    answer = node(command[:start] + shlex.quote(str(PYTHONS[minor])) + command[end:], bundle.build().archive)
    if minor < 8:
        assert answer == {"shakedown_bundle": bundle.NO_PYTHON}
    else:
        assert answer["probe"]["python"].startswith(f"3.{minor}.")
        assert answer["interfaces"], "psutil's library loads under this Python"


def test_the_probe_parses_under_python_3_8() -> None:
    for path in [*NODE.rglob("*.py"), NODE.parent / "schedulers/slurm/relay.py"]:
        ast.parse(path.read_text(), feature_version=(3, 8))


def test_the_probe_imports_nothing_that_does_not_travel() -> None:
    """Standard library, its own modules, and the three packages of the bundle."""
    allowed = {*sys.stdlib_module_names, "psutil", "pyudev", "amdsmi", "shakedown.node.__main__"}
    for path in NODE.glob("*.py"):
        for statement in ast.walk(ast.parse(path.read_text())):
            if isinstance(statement, ast.ImportFrom) and not statement.level:
                assert statement.module in allowed or str(statement.module).split(".")[0] in allowed, path
            elif isinstance(statement, ast.Import):
                assert {alias.name.split(".")[0] for alias in statement.names} <= allowed, path


DEAR = {"asyncio", "concurrent", "dataclasses", "decimal", "email", "html", "http", "inspect", "logging"}
DEAR |= {"multiprocessing", "pkgutil", "ssl", "tempfile", "tokenize", "unittest", "urllib", "xml", "zipfile"}


def test_a_check_loads_nothing_dear_on_the_node(node: Callable[..., dict[str, Any]], installed: Path) -> None:
    """`make bench` measures the CPU of a check; here stands what would make it dearer on every processor."""
    command = bundle.launch_command().replace('" -I -S', '" -X importtime -I -S')
    kept = command.replace("2>&1; code", f"2> {shlex.quote(str(installed / 'imports'))}; code")
    assert node(kept)["probe"]["cpu_s"] > 0
    loaded = {line.rpartition("|")[2].strip() for line in (installed / "imports").read_text().splitlines()}
    assert {"json", "psutil", "shakedown.node.__main__"} <= loaded, "the list is of the probe's imports"
    assert not {name for name in loaded if name.partition(".")[0] in DEAR}
    assert len(loaded) < 200  # 123 under 3.11


def test_what_travels_is_pinned_so_that_every_checkout_makes_the_same_bundle() -> None:
    wanted = tomllib.loads((NODE.parents[1] / "pyproject.toml").read_text())["project"]["dependencies"]
    for package in bundle._PACKAGES:
        assert f"{package}=={version(package)}" in wanted


@pytest.mark.parametrize("asset", sorted((NODE / "assets").glob("*.py")), ids=lambda path: path.name)
def test_a_script_that_is_sent_is_whole_for_the_oldest_python(asset: Path) -> None:
    """Each module that it needs is in it, once, and its text is plain enough for any locale."""
    text = program(asset)
    assert text.isascii() and "import shakedown" not in text and "from shakedown" not in text
    ast.parse(text, feature_version=(3, 8))
    if PYTHONS[8]:
        done = subprocess.run([PYTHONS[8], "-I", "-S", "-c", text], input="", capture_output=True, text=True)
        assert "NameError" not in done.stderr and "SyntaxError" not in done.stderr
