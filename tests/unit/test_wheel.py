"""The wheel, built and installed into an environment of its own: the command and a new site work from any folder."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from shakedown.runner.pyinfra.site_files import site_files

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Installed:
    """An environment with nothing but the wheel, beside the packages of the one that runs the tests."""

    wheel: Path
    bin: Path
    folder: Path

    def run(self, *argv: str, where: Path | None = None, code: int | None = 0) -> str:
        """What a command says on both streams; run where nothing of the checkout is."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
        environment |= {"HOME": str(self.folder), "PYINFRA_PROGRESS": "off", "COLUMNS": "10000"}
        done = subprocess.run(
            [self.bin / argv[0], *argv[1:]],
            cwd=where or self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
        )
        assert code is None or done.returncode == code, done.stdout
        return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")

    def call(*argv: object) -> None:
        done = subprocess.run([str(word) for word in argv], cwd=ROOT, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr

    call(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "dist")
    (wheel,) = (folder / "dist").glob("*.whl")
    call(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    python = folder / "venv/bin/python"
    # For speed: what shakedown depends on comes from here and not from the network. As plain entries of the path, so
    # that .pth files in these folders, by which a checkout is importable, do not count.
    (packages,) = (folder / "venv/lib").glob("python*/site-packages")
    shared = [entry for entry in sys.path if Path(entry).name == "site-packages"]
    (packages / "shared.pth").write_text("".join(f"{entry}\n" for entry in shared))
    call(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel)
    # As pip writes it where the path has a space, which a first line by itself cannot have.
    first = f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n"
    (python.parent / "pyinfra").write_text(f"{first}import sys\nfrom pyinfra_cli.cli import cli\nsys.exit(cli())\n")
    (python.parent / "pyinfra").chmod(0o755)
    return Installed(wheel, python.parent, folder)


def test_nothing_of_a_common_name_is_installed(installed: Installed) -> None:
    names = {name.split("/")[0] for name in zipfile.ZipFile(installed.wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"shakedown"} and len(names) == 2


def test_it_is_the_wheel_that_runs(installed: Installed) -> None:
    """Without this the other tests here could be looking at the checkout."""
    text = (
        "import sys, shakedown, importlib.metadata as m\n"
        "print(shakedown.__file__)\n"
        "print([e.value for e in m.entry_points(group='pyinfra.connectors') if e.name == 'shakedown'])\n"
        "print(*sys.path, sep='\\n')"
    )
    where, entry, *path = installed.run("python", "-c", text).splitlines()
    assert Path(where).is_relative_to(installed.folder / "venv")
    assert entry == "['shakedown.runner.pyinfra.guard:Guard']"
    assert str(ROOT) not in path and not any(Path(each, "deploy").is_dir() for each in path if each)


def test_the_command_works_from_any_folder(installed: Installed) -> None:
    assert '"cpu"' in installed.run("shakedown", "show", "@local", "@local", "--data", "gpu=cpu")
    nothing = '--data=tuning={"numa_balancing": null}'
    assert "verdict: ok" in installed.run("shakedown", "drift", "@local", "--data", "gpu=cpu", nothing)
    said = installed.run("shakedown", "run", "@local", "--dry", "--data", "gpu=cpu", nothing)
    assert "nothing to change" in said and "verdict: ok" in said


def test_a_new_site_runs_as_it_stands(installed: Installed) -> None:
    said = installed.run("shakedown", "init", "my site")
    site = installed.folder / "my site"
    files = {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()}
    assert files == set(site_files()) and all(str(Path("my site", name)) in said for name in files)
    assert {"deploy/megatron.py", "inventories/local.py", "group_data/all.py", ".gitignore", "README.md"} <= files
    plan = installed.run("shakedown", "plan", "inventories/local.py", where=site)
    assert "--nproc-per-node 2" in plan
    site.joinpath("group_data/all.py").write_text('smoke = {"recipe": "gpt-small", "ranks_per_node": 3}\n')
    dry = ("pyinfra", "inventories/local.py", "deploy/megatron.py", "-y", "--dry")
    said = installed.run(*dry, where=site, code=1)  # a plain install has no torch, and a dry run looks for it
    assert "--nproc-per-node 3" in said and "bin/torchrun is missing" in said
    assert "changed: nothing (dry run)" in said
    assert not (site / "runs").exists()
    wrong = ("pyinfra", "inventories/local.py", "deploy/megatron.py", "--dry", "-y", "--data", "gpu=mi301x")
    said = installed.run(*wrong, where=site, code=2)  # told by the guard, before the first connection
    assert "gpu.profile = 'mi301x'" in said and "Connected" not in said


def test_a_site_overwrites_nothing(installed: Installed) -> None:
    site = installed.folder / "taken"
    (site / "deploy").mkdir(parents=True)
    (site / "deploy/drift.py").write_text("mine\n")
    (site / "README.md").symlink_to("nowhere")
    (site / "inventories").write_text("a file\n")
    (site / "group_data").symlink_to(installed.folder)
    said = installed.run("shakedown", "init", str(site), code=2)
    for problem in (
        "deploy/drift.py: is there already",
        "README.md: is there already",
        "inventories: is no folder",
        "group_data: is a link",
    ):
        assert f"{site}/{problem}" in said
    assert {path.name for path in site.iterdir()} == {"deploy", "README.md", "inventories", "group_data"}
    assert [path.name for path in (site / "deploy").iterdir()] == ["drift.py"]
    assert (site / "deploy/drift.py").read_text() == "mine\n"
    said = installed.run("shakedown", "init", str(site / "inventories"), code=2)
    assert said.count(f"{site}/inventories: is no folder") == 1
