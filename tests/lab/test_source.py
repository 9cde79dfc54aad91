"""Programs from source on real nodes: a git server, a package index, patches that fit and patches that do not."""

from __future__ import annotations

import functools
import http.server
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.lab import git_server
from tests.lab.conftest import RackMaker
from tests.lab.namespaces import Rack
from tests.lab.product import PROJECT, Product, Ran

PATH = "/opt/megatron-lm"
FUSED = "\n".join(f"line {number}" for number in range(1, 41)) + "\n"


class Upstream:
    """A repository like Megatron-LM's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self.git("init", "--quiet", "--initial-branch", "main")
        for file in ("megatron/__init__.py", "megatron/fused.py"):
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_text(FUSED.replace("line", "# line"))
        (folder / "setup.py").write_text(
            "from setuptools import setup\nsetup(name='megatron', packages=['megatron'])\n"
        )
        (folder / "requirements.txt").write_text("tinydep\n")
        self.first = self.commit("first")

    def git(self, *words: str) -> str:
        identity = ["-c", "user.name=lab", "-c", "user.email=lab@example.org"]
        done = subprocess.run(["git", "-C", self.folder, *identity, *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self, message: str) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)
        return self.git("rev-parse", "HEAD")

    def patch(self, file: Path, *changes: tuple[str, str]) -> Path:
        """A patch of megatron/fused.py, against HEAD, as `git diff` writes it."""
        source = self.folder / "megatron/fused.py"
        before = source.read_text()
        text = before
        for old, new in changes:
            text = text.replace(f"{old}\n", f"{new}\n")
        source.write_text(text)
        file.write_text(self.git("diff") + "\n")
        source.write_text(before)
        return file


@pytest.fixture
def lab(rack: RackMaker, request: pytest.FixtureRequest) -> Rack:
    return rack(getattr(request, "param", 2))


@pytest.fixture
def upstream(lab: Rack, tmp_path: Path) -> Iterator[Upstream]:
    folder = tmp_path / "served/megatron"
    folder.mkdir(parents=True)
    made = Upstream(folder)
    with git_server.serve(folder.parent, str(lab.slot.gateway)) as address:
        made.url = f"{address}/megatron"
        yield made


def run(lab: Rack, folder: Path, *calls: str, verbose: bool = True) -> Ran:
    """The operations on every node of the rack, through plain pyinfra."""
    deploy = folder / "deploy.py"
    deploy.write_text("from shakedown.operations import checkout, patch, venv\n" + "\n".join(calls) + "\n")
    options = ["-v"] if verbose else []
    return Product(PROJECT).run("pyinfra", "-y", *options, lab.inventory(folder / "lab.py"), deploy)


def at(upstream: Upstream, commit: str) -> str:
    return f"checkout.git(url={upstream.url!r}, path={PATH!r}, commit={commit!r})"


def test_a_checkout_is_pinned_patched_once_and_moves_on(lab: Rack, upstream: Upstream, tmp_path: Path) -> None:
    fits = upstream.patch(tmp_path / "fits.patch", ("# line 5", "# five"), ("# line 30", "# thirty"))
    applied = f"patch.apply(path={PATH!r}, patch_file={str(fits)!r})"
    done = run(lab, tmp_path, at(upstream, upstream.first), applied)
    assert done.code == 0, done.text
    for node in lab:
        assert node.exec(f"git -C {PATH} rev-parse HEAD").stdout.strip() == upstream.first
        assert "# five" in node.read(f"{PATH}/megatron/fused.py")
    done = run(lab, tmp_path, at(upstream, upstream.first), applied)
    assert done.code == 0 and done.text.count("No changes") == 4, done.text
    # The pin moves: what our patch changed is no obstacle.
    (upstream.folder / "README").write_text("second\n")
    second = upstream.commit("second")
    done = run(lab, tmp_path, at(upstream, second), applied)
    assert done.code == 0, done.text
    for node in lab:
        assert node.exec(f"git -C {PATH} rev-parse HEAD").stdout.strip() == second
        assert "# five" in node.read(f"{PATH}/megatron/fused.py")
    # A commit that is there needs no network, one that nobody has is an error.
    assert run(lab, tmp_path, at(upstream, upstream.first).replace(str(git_server.PORT), "1")).code == 0
    done = run(lab, tmp_path, at(upstream, "f" * 40))
    assert done.code == 1, done.text
    assert lab["node1"].exec(f"git -C {PATH} rev-parse HEAD").stdout.strip() == upstream.first


def test_local_changes_of_others_stay(lab: Rack, upstream: Upstream, tmp_path: Path) -> None:
    assert run(lab, tmp_path, at(upstream, upstream.first)).code == 0
    (upstream.folder / "README").write_text("second\n")
    second = upstream.commit("second")
    lab["node1"].exec(f"echo mine >> {PATH}/megatron/fused.py; mkdir /opt/data; touch /opt/data/precious")
    for commit in (upstream.first, second):
        done = run(lab, tmp_path, at(upstream, commit))
        assert done.code == 1 and "local changes that no recorded patch made (M megatron/fused.py)" in done.text
    assert lab["node1"].read(f"{PATH}/megatron/fused.py").endswith("mine\n")
    assert lab["node2"].exec(f"git -C {PATH} rev-parse HEAD").stdout.strip() == second
    done = run(lab, tmp_path, at(upstream, second).replace(PATH, "/opt/data"))
    assert "/opt/data is there and is no git checkout" in done.text
    assert lab["node1"].exec("ls -A /opt/data").stdout == "precious\n"


def test_a_patch_that_does_not_fit_names_its_hunks_and_changes_nothing(
    lab: Rack, upstream: Upstream, tmp_path: Path
) -> None:
    changes = [("# line 5", "# five"), ("# line 20", "# twenty"), ("# line 35", "# thirty-five")]
    late = upstream.patch(tmp_path / "late.patch", *changes)
    for old in ("# line 6", "# line 36"):
        text = (upstream.folder / "megatron/fused.py").read_text()
        (upstream.folder / "megatron/fused.py").write_text(text.replace(f"{old}\n", f"{old} moved on\n"))
    moved = at(upstream, upstream.commit("moved"))
    done = run(lab, tmp_path, moved, f"patch.apply(path={PATH!r}, patch_file={str(late)!r})", verbose=False)
    assert done.code == 1
    assert "late.patch does not apply" in done.text and "which is unchanged" in done.text
    for shown in ("megatron/fused.py:2", "-# line 5", "megatron/fused.py:32", "+# thirty-five"):
        assert shown in done.text
    assert "+# twenty" not in done.text, "that hunk would have fitted"
    for node in lab:
        assert node.exec(f"git -C {PATH} status --porcelain").stdout == ""


@contextmanager
def index(folder: Path, address: str) -> Iterator[str]:
    """A package index with one package, `tinydep`."""
    place = folder / "simple/tinydep"
    place.mkdir(parents=True)
    with ZipFile(place / "tinydep-1.0-py3-none-any.whl", "w") as wheel:
        info = "tinydep-1.0.dist-info"
        wheel.writestr("tinydep.py", "here = True\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tinydep\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer((address, 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{address}:{server.server_port}/simple"
        server.shutdown()


@pytest.mark.parametrize("lab", [1], indirect=True)
def test_an_environment_is_installed_once_and_proved_by_import(lab: Rack, upstream: Upstream, tmp_path: Path) -> None:
    address = str(lab.slot.gateway)

    def install(url: str, modules: list[str], **more: object) -> str:
        step = {"requirements": f"{PATH}/requirements.txt", "index_url": url, "packages": [f"--trusted-host={address}"]}
        asked = {
            "path": "/opt/venv",
            "steps": [step],
            "editable": PATH,
            "modules": modules,
            "python": "/usr/bin/python3",
        }
        given = ", ".join(f"{key}={value!r}" for key, value in (asked | more).items())
        return f"venv.install({given})"

    with index(tmp_path / "index", address) as url:
        both = [at(upstream, upstream.first), install(url, ["tinydep", "megatron"])]
        done = run(lab, tmp_path, *both)
        assert done.code == 0, done.text
        for node in lab:
            said = node.exec(
                "cd / && /opt/venv/bin/python -c 'import megatron, tinydep; print(megatron.__file__)'"
            ).stdout
            assert said == f"{PATH}/megatron/__init__.py\n"
    # The index is gone: a second run needs nobody, and what is asked for besides is noticed.
    done = run(lab, tmp_path, *both)
    assert done.code == 0 and done.text.count("No changes") == 2, done.text
    done = run(lab, tmp_path, install(url, ["tinydep", "apex"]))
    assert done.code == 1
    lab["node1"].exec("rm /opt/venv/lib/python3*/site-packages/tinydep.py")
    done = run(lab, tmp_path, both[1])
    assert done.code == 1, "a module that cannot be imported any more must not pass for installed"
    assert lab["node1"].exec("ls /opt/venv/shakedown.sha256", check=False).stdout == ""


@pytest.mark.parametrize("lab", [1], indirect=True)
def test_the_deploy_builds_what_the_desired_state_names(lab: Rack, upstream: Upstream, tmp_path: Path) -> None:
    fits = upstream.patch(tmp_path / "fits.patch", ("# line 5", "# five"))
    source = {"url": upstream.url, "commit": upstream.first, "path": PATH, "patches": [str(fits)]}
    inventory = lab.inventory(tmp_path / "lab.py", {"gpu": "cpu", "source": source})
    product = Product(tmp_path)
    done = product.deploy(inventory, "megatron_source", "-y")
    assert done.code == 0, done.text
    assert "# five" in lab["node1"].read(f"{PATH}/megatron/fused.py")
    lab["node1"].exec(f"echo mine >> {PATH}/setup.py")
    done = product.deploy(inventory, "megatron_source", "-y")
    assert done.code == 1 and "local changes that no recorded patch made" in done.text
    smoke = {"gpu": "cpu", "source": source, "smoke": {"recipe": "gpt-small", "steady": False}}
    done = product.deploy(lab.inventory(tmp_path / "other.py", smoke), "megatron_source", "-y")
    assert done.code == 2 and "expected one of radeon-gpt-1gpu" in done.text
