"""Build what a release has: wheel, sdist, the deb of the node's agent, an SBOM, and their digests. `make release`.

    python contrib/release/build.py dist

Everything is built twice from the commit that is checked out, never from the working tree, and has to be equal. Times
in the files are the commit's. Needs the extra `release`, git, tar and dpkg-deb.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
AGENT = "usr/lib/shakedown-agent"
# `purge` leaves nothing; what a site has put into /etc/shakedown is not the package's.
_SCRIPTS = {
    "preinst": f"""#!/bin/sh
set -e
# dpkg keeps a folder that is there as it is, and root runs what is in it.
if [ -e /{AGENT} ] && [ -n "$(find /{AGENT} ! -type l \\( ! -user root -o -perm /022 \\))" ]; then
    echo "/{AGENT} is not root's alone: look at what is in it, and move it away" >&2
    exit 1
fi
""",
    "postinst": f"""#!/bin/sh
set -e
if [ "$1" = configure ]; then
    /usr/bin/python3 -I -S -m compileall -q --invalidation-mode unchecked-hash /{AGENT}
    if [ -d /run/systemd/system ]; then systemctl daemon-reload; systemctl enable --now shakedown-agent.timer; fi
fi
""",
    "prerm": f"""#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now shakedown-agent.timer || true
    systemctl stop shakedown-agent.service || true
fi
[ ! -d /{AGENT} ] || find /{AGENT} -depth -name __pycache__ -exec rm -r {{}} +
""",
    "postrm": """#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
if [ "$1" = purge ]; then
    rm -f /var/lib/shakedown/verdict /var/lib/shakedown/verdict.json /var/lib/shakedown/remedied.json || true
    rmdir /var/lib/shakedown 2>/dev/null || true
fi
""",
}


def call(*words: object, where: Path | None = None, epoch: int | None = None) -> str:
    """Run a command, which has to succeed, and return what it prints."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(where or ROOT),
        **({"SOURCE_DATE_EPOCH": str(epoch)} if epoch else {}),
    }
    command = [str(word) for word in words]
    done = subprocess.run(command, cwd=where or ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def commit_time(commit: str = "HEAD") -> int:
    """Return when a commit was made: seconds since 1970, UTC."""
    return int(call("git", "log", "-1", "--format=%ct", commit))


def exported(commit: str, folder: Path) -> Path:
    """Write the files of a commit into a folder."""
    archive = folder.with_suffix(".tar")
    call("git", "archive", "--format=tar", f"--output={archive}", commit)
    folder.mkdir()
    call("tar", "-xf", archive, "-C", folder)
    return folder


def wheel_and_sdist(source: Path, out: Path, epoch: int) -> None:
    """Build both from a source tree."""
    call(sys.executable, "-m", "hatchling", "build", "-d", out, where=source, epoch=epoch)


def agent_files(source: Path) -> dict[str, tuple[str, int]]:
    """Return the files of the agent, by their paths on a node: text and mode. The source tree's own code says which."""
    script = """
import base64, io, json, tarfile, zlib
from shakedown.agent import program
from shakedown.desired.models import Agent
from shakedown.operations import agent
built = program.build()
agents = Agent().model_dump(mode="json")
print(json.dumps({
    "program": {name: data.decode("latin-1") for name, data in built.files.items()},
    "run": agent.start("/usr/lib/shakedown-agent"),
    "units": agent.units(agents, "/usr/lib/shakedown-agent/run"),
    "health": agent.HEALTH_TEXT,
}))
"""
    made = json.loads(call(sys.executable, "-c", script, where=source))
    files = {f"{AGENT}/{name}": (text, 0o644) for name, text in made["program"].items()}
    files[f"{AGENT}/run"] = ("#!/usr/bin/python3 -IS\n" + made["run"], 0o755)
    files |= {f"usr/lib/systemd/system/{name}": (text, 0o644) for name, text in made["units"].items()}
    files["usr/libexec/shakedown-health"] = (made["health"], 0o755)
    return files


def deb(source: Path, out: Path, epoch: int) -> None:
    """Build the deb of the agent: its program, its units and shakedown-health."""
    version = tomllib.loads((source / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    files: Mapping[str, tuple[str, int]] = agent_files(source)
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        control = (
            f"Package: shakedown-agent\nVersion: {version}\nArchitecture: amd64\nMaintainer: The Shakedown authors"
            " <shakedown@users.noreply.github.com>\nDepends: python3 (>= 3.8)\nSection: admin\nPriority: optional\n"
            "Description: checks a GPU node against its desired state\n"
            " A timer runs the check once /etc/shakedown/agent.json is there; deploy/agent.py of Shakedown writes it.\n"
        )
        scripts = {f"DEBIAN/{name}": (text, 0o755) for name, text in _SCRIPTS.items()}
        for name, (text, mode) in {**files, **scripts, "DEBIAN/control": (control, 0o644)}.items():
            path = tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("latin-1" if name.startswith(AGENT) else "utf-8"))
            path.chmod(mode)
        for folder in (tree, *(path for path in tree.rglob("*") if path.is_dir())):
            folder.chmod(0o755)
        target = out / f"shakedown-agent_{version}_amd64.deb"
        call("dpkg-deb", "--root-owner-group", "-Zxz", "--build", tree, target, epoch=epoch)


def sbom(source: Path, out: Path) -> None:
    """Write the parts of a plain install, with hashes, as CycloneDX."""
    tool = Path(sys.executable).with_name("cyclonedx-py")
    target = out / "shakedown.cdx.json"
    words = ("requirements", source / "requirements.lock", "--pyproject", source / "pyproject.toml")
    call(tool, *words, "--output-reproducible", "--of", "JSON", "-o", target)
    parts = json.loads(target.read_text("utf-8"))["components"]
    locked = re.findall(r"^([a-z0-9._-]+)==", (source / "requirements.lock").read_text("utf-8"), re.M)
    without = [part["name"] for part in parts if not re.search(r"sha-?256", json.dumps(part), re.I)]
    if sorted(part["name"].lower() for part in parts) != sorted(locked) or without:
        raise SystemExit(f"the SBOM has {len(parts)} parts of {len(locked)}, without hashes: {without}")


def build(commit: str, out: Path) -> dict[str, str]:
    """Build all of a commit into a folder. Return the digest of each file."""
    out.mkdir(parents=True)
    epoch = commit_time(commit)
    with tempfile.TemporaryDirectory() as scratch:
        source = exported(commit, Path(scratch) / "source")
        wheel_and_sdist(source, out, epoch)
        deb(source, out, epoch)
        sbom(source, out)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(out.iterdir())}


def main(folder: Path) -> None:
    """Build twice, compare, check what PyPI would refuse, and leave the files with their digests."""
    with tempfile.TemporaryDirectory() as scratch:
        first, second = (build("HEAD", Path(scratch) / name) for name in ("a", "b"))
        if first != second:
            raise SystemExit(f"not reproducible: {sorted(name for name in first if first[name] != second.get(name))}")
        packages = [Path(scratch) / "a" / name for name in first if name.endswith((".whl", ".tar.gz"))]
        call(sys.executable, "-m", "twine", "check", "--strict", *packages)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(Path(scratch) / "a", folder)
    (folder / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in first.items()))
    print((folder / "SHA256SUMS").read_text(), end="")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
