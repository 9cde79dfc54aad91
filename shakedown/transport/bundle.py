"""The bundle that travels to the nodes: the probe, psutil, pyudev and AMD's Python package in one archive.

It is found on a node by its digest, a sha256 over the path and content of every file. On the node `node/launch.py`
verifies and runs what is cached; `node/install.py` puts it there first. Both go there as text on the command line.
"""

import base64
import hashlib
import io
import json
import re
import shlex
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from shakedown.transport.program import as_word, bare, search

_NODE = Path(__file__).parents[1] / "node"
_KERNEL_WORDS = Path(__file__).parents[1] / "catalogue/kernel_words.json"  # written by tests/docs
# They travel by themselves: shakedown/jobs/remote.py, operations/atomic.py, shakedown/agent/program.py.
_APART = {"agent", "launcher", "telemetry", "assets"}
_SENT_AS_TEXT = {"launch.py", "install.py", "safe_files.py", "records.py", "data.py"}
# For graphical programs, for installing, and for other systems.
_NOT_CARRIED = ("glib", "pyqt", "pyside", "wx", "_qt", "setup", "_psaix", "_psbsd", "_psosx", "_pssunos", "_pswindows")
# Where each package goes, and what of it. The node's own amdsmi is preferred, so the carried one is kept off the
# ordinary search path.
_PACKAGES = {"psutil": ("", {".so", ".py"}), "pyudev": ("", {".py"}), "amdsmi": ("fallback/", {".py"})}
_INDENT = re.compile(r"^(?: {4})+", re.MULTILINE)
# Exit codes after which the next one is tried: too old, not executable, not found (a version manager's empty shim).
_NOT_THIS_ONE = "97|126|127"
NO_PYTHON = "found no python3 of version 3.8 or newer that timeout(1) could run"


class BundleError(Exception):
    """The bundle cannot be built on this controller; says what to install."""


@dataclass(frozen=True)
class Bundle:
    """`files` by path inside the bundle; `digest` is 64 hexadecimal digits."""

    files: dict[str, bytes]
    digest: str

    @cached_property
    def archive(self) -> str:
        """Return the files as a compressed tar archive in base64 text, the same for the same files."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name, data in sorted(self.files.items()):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        return base64.encodebytes(zlib.compress(buffer.getvalue(), 9)).decode()


def files_digest(files: dict[str, bytes]) -> str:
    """Return the digest that node/launch.py computes: sha256 over a line for each file, as sha256sum(1) prints them."""
    lines = (f"{hashlib.sha256(data).hexdigest()}  {path}\n" for path, data in sorted(files.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _package_files(package: str) -> Iterator[tuple[str, bytes]]:
    """Yield the Python files and libraries of an installed package. psutil's library must be of the stable ABI for
    Linux on x86_64: one file then serves every Python that the probe supports."""
    try:
        installed = distribution(package)
    except PackageNotFoundError:
        raise BundleError(f"{package} is not installed on this machine: pip install {package}") from None
    for file in installed.files or []:
        wanted = file.suffix in _PACKAGES[package][1] and file.parts[0] == package and "__pycache__" not in file.parts
        if not wanted or file.name.startswith(_NOT_CARRIED):
            continue
        if file.suffix == ".so" and ".abi3." not in file.name:
            raise BundleError(f"{package} has {file.name}, not a library of the stable ABI: install its abi3 wheel")
        yield str(file), Path(str(file.locate())).read_bytes()


@cache
def build() -> Bundle:
    """Build the bundle of this checkout and environment. Raises BundleError where a package is missing."""
    files = {"shakedown/__init__.py": b""}
    for path in sorted(_NODE.rglob("*")):
        if (
            path.suffix in (".py", ".json")
            and path.name not in _SENT_AS_TEXT
            and not _APART.intersection(path.relative_to(_NODE).parts)
        ):
            files[f"shakedown/node/{path.relative_to(_NODE)}"] = path.read_bytes()
    files["shakedown/node/kernel_words.json"] = _KERNEL_WORDS.read_bytes()
    for package, (prefix, _) in _PACKAGES.items():
        files.update((prefix + name, data) for name, data in _package_files(package))
    return Bundle(files, files_digest(files))


def _script(digest: str, *names: str, last: str) -> str:
    text = "\n".join([*(bare(_NODE / name) for name in names), last]).replace("'DIGEST'", repr(digest))
    return _INDENT.sub(lambda blanks: " " * (len(blanks[0]) // 4), text)  # a quarter of it is blanks


def _command(script: str, seconds: int, requested: Sequence[str]) -> str:
    """Return one line for any POSIX shell: the first Python that is new enough runs the script. `requested`: what the
    probe is to read besides what it always does. It always ends with exit 0: what went wrong is said on the last line
    in JSON, after what Python had to say, so that the fact can put it in words."""
    complaint = json.dumps({"shakedown_bundle": NO_PYTHON})
    failure = json.dumps({"shakedown_bundle": "exit CODE"}).replace("CODE", "'$code'")
    attempt = (
        f'timeout -k 5 {seconds} "$python" -I -S -c {as_word(script)} {shlex.join(requested)} 2>&1; code=$?; '
        f"case $code in 0) ;; {_NOT_THIS_ONE}) continue ;; *) echo '{failure}' ;; esac; exit 0"
    )
    return search(attempt, f"echo '{complaint}'")


@cache
def launch_command(seconds: int = 60, requested: tuple[str, ...] = ()) -> str:
    """Return the shell command of the steady state: verify and run what is cached, or say that it is missing."""
    return _command(_script(build().digest, "owners.py", "launch.py", last="launch()"), seconds, requested)


@cache
def install_command(requested: tuple[str, ...] = ()) -> str:
    """Return the shell command that takes `Bundle.archive` on standard input, keeps it, and runs the probe."""
    return _command(_script(build().digest, "owners.py", "launch.py", "install.py", last="install()"), 120, requested)
