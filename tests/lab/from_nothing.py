"""`make smoke` and `make test` where nothing is installed: Debian's smallest root file system with python3.11, make and
git, and a fresh clone of what is committed.

    python3.11 -m tests.lab.from_nothing [COMMAND...]     # `make test-from-nothing`; root, some 30 minutes on 2 cores

The root has its own mounts and processes, which all end with it, and the machine's network. From the machine come only
the ways to its registries: name server, certificates, pip's configuration with the folders that it names. Standard
library alone.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.lab.cache import debian
from tests.lab.machine import LabError, require_root, run

PACKAGES = ("ca-certificates", "git", "make", "python3.11")
COMMANDS = ("make smoke", "make test")
CLONE = "root/shakedown"
PLACE = Path("/var/lib/sdlab-nothing")  # a real file system: the nodes inside have overlays of their own
REGISTRIES = ("etc/resolv.conf", "etc/hosts", "etc/ssl/certs", "usr/local/share/ca-certificates", "etc/pip.conf")
PASSED_ON = re.compile(r"(?i)(?:http|https|no)_proxy|PIP_.*|SSL_CERT_.*|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|GIT_SSL_.*")

# $1 the root, the other words the folders that pip reads. PID 1 inside is a python that takes in orphans, as init does.
ENTER = r"""
set -e
root=$1; shift
mount --bind "$root" "$root"
for folder in "$@"; do
  mkdir -p "$root$folder"; mount --bind "$folder" "$root$folder"; mount -o remount,ro,bind "$root$folder"
done
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
for place in run tmp; do mount -t tmpfs tmpfs "$root/$place"; done
chmod 1777 "$root/tmp"
cd "$root"
mkdir -p old
pivot_root . old
umount -l /old
rmdir /old
exec python3.11 -c '
import os, sys
child = os.spawnvp(os.P_NOWAIT, "sh", ["sh", "-c", sys.argv[1]])
while True:
    pid, status = os.wait()
    if pid == child:
        sys.exit(os.waitstatus_to_exitcode(status) % 256)
' "$SHAKEDOWN_COMMAND"
"""


def pip_folders() -> list[Path]:
    """Folders of this machine from which its pip installs, by its configuration."""
    texts = [path.read_text("utf-8") for path in _pip_files() if path.is_file()]
    texts += [value for name, value in os.environ.items() if name.startswith("PIP_")]
    found = [Path(match) for text in texts for match in re.findall(r"(?:file://|(?<![\w:/]))(/[^\s,]+)", text)]
    tops = sorted({path.parent if path.name == "simple" else path for path in found if path.is_dir()})
    return [path for path in tops if path not in (Path("/"), Path("/etc"))]


def _pip_files() -> list[Path]:
    home = Path.home()
    return [Path("/etc/pip.conf"), home / ".config/pip/pip.conf", home / ".pip/pip.conf"]


def prepare(root: Path) -> None:
    """Lay the root out: Debian, the clone, the ways to the registries."""
    run(["tar", "--extract", "--preserve-permissions", "--file", str(debian("bare", "bookworm", PACKAGES)),
         "--directory", str(root)], timeout=600)  # fmt: skip
    project = Path(__file__).parents[2]
    run(["git", "clone", "--quiet", "--no-hardlinks", str(project), str(root / CLONE)])
    there = [name for name in REGISTRIES if Path("/", name).exists()]
    run(["cp", "--archive", "--remove-destination", "--parents", *there, str(root)], cwd=Path("/"))
    for file in _pip_files()[1:]:
        if file.is_file():
            target = root / "root" / file.relative_to(Path.home())
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)


def enter(root: Path, command: str) -> int:
    """Run a shell command in the clone inside the root; its exit code. Everything it started has ended then."""
    environment = {name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}
    environment |= {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    environment |= {"LANG": "C.UTF-8", "TERM": "dumb", "CI": "true"}
    environment["SHAKEDOWN_COMMAND"] = f"cd /{CLONE} && {command}"
    own = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--propagation", "private"]
    folders = [str(path) for path in pip_folders()]
    return subprocess.run([*own, "sh", "-c", ENTER, "sh", str(root), *folders], env=environment, check=False).returncode


def main(commands: list[str]) -> int:
    """Each command in turn, in one root; the first that fails is the end."""
    require_root()
    PLACE.mkdir(exist_ok=True)
    clear_wrecks()
    root = Path(tempfile.mkdtemp(dir=PLACE))
    lock = os.open(root, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        prepare(root)
        root.chmod(0o755)
        for command in commands:
            began = time.monotonic()
            code = enter(root, command)
            print(f"from nothing: {command}: exit {code} after {time.monotonic() - began:.0f} s", flush=True)
            if code:
                return code
    finally:
        remove(root)
    return 0


def clear_wrecks() -> None:
    """Remove the roots of runs that were killed: nobody holds their lock any more."""
    for root in PLACE.iterdir():
        fd = os.open(root, os.O_RDONLY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(root)
        except BlockingIOError:
            continue
        finally:
            os.close(fd)


def remove(root: Path) -> None:
    run(["rm", "-rf", "--one-file-system", str(root)], timeout=600)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:] or list(COMMANDS)))
    except LabError as error:
        sys.exit(f"test-from-nothing: {error}")
