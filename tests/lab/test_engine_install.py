"""A container engine from the distribution's packages, by apt and dpkg as they are, out of a repository on the node.

The packages and what runs of them are the lab's own: a daemon that answers as docker does, and a systemctl that starts
it. Not seen here: the distributions' own packages, dnf and rpm, and systemd.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from tests.lab.conftest import RackMaker
from tests.lab.namespaces import Node
from tests.lab.product import Product

pytestmark = pytest.mark.skipif(not Path("/usr/bin/dpkg-deb").exists(), reason="only Debian and Ubuntu have apt")

DAEMON = """#!/usr/bin/python3
import json, os, socket
path = "/run/docker.sock"
if os.path.exists(path):
    os.unlink(path)
server = socket.socket(socket.AF_UNIX)
server.bind(path)
server.listen(8)
while True:
    connection, _ = server.accept()
    request = connection.recv(4096).split()[1]
    body = [] if b"images" in request else {"ServerVersion": "1.0", "DockerRootDir": "/var/lib", "ContainersRunning": 0}
    connection.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\n" + json.dumps(body).encode())
    connection.close()
"""
SYSTEMCTL = """#!/bin/sh
unit=/lib/systemd/system/docker.service
case $1 in
show) echo Id=docker.service
      [ -e $unit ] && echo LoadState=loaded || echo LoadState=not-found
      [ -e /run/docker.pid ] && echo ActiveState=active || echo ActiveState=inactive
      [ -e /etc/docker.enabled ] && echo UnitFileState=enabled || echo UnitFileState=disabled ;;
enable) touch /etc/docker.enabled
        setsid /usr/sbin/dockerd >/dev/null 2>&1 </dev/null & echo $! > /run/docker.pid; sleep 1 ;;
disable) rm -f /etc/docker.enabled ;;
stop) kill "$(cat /run/docker.pid)"; rm -f /run/docker.pid /run/docker.sock ;;
esac
"""
REPOSITORY = "/srv/packages"


def packed(folder: Path, name: str, fields: str = "", files: dict[str, str] | None = None) -> str:
    """Build a package, and return its part of the list of packages."""
    tree = folder / name
    control = f"Package: {name}\nVersion: 99\nArchitecture: all\nMaintainer: lab <lab@example.com>\n{fields}"
    control += f"Description: {name} of the lab\n"
    for path, text in {"DEBIAN/control": control, **(files or {})}.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
        (tree / path).chmod(0o644 if path == "DEBIAN/control" else 0o755)
    target = folder / f"{name}.deb"
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", tree, target], check=True, capture_output=True)
    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    return f"{control}Filename: ./{target.name}\nSize: {target.stat().st_size}\nSHA256: {digest}\n"


@pytest.fixture
def site(rack: RackMaker, tmp_path: Path) -> tuple[Node, Path]:
    """A node without an engine, whose only source of packages is a folder of its own; and its inventory."""
    folder = tmp_path / "packages"
    unit = {"lib/systemd/system/docker.service": "[Service]\nExecStart=/usr/sbin/dockerd\n"}
    parts = [
        packed(folder, "sdlab-runtime"),
        packed(folder, "sdlab-network"),
        packed(
            folder,
            "docker.io",
            "Depends: sdlab-runtime\nRecommends: sdlab-network\nConflicts: docker-ce\n",
            {"usr/sbin/dockerd": DAEMON, **unit},
        ),
        packed(folder, "sdlab-needs-runtime", "Depends: sdlab-runtime\n"),
        packed(folder, "docker-ce"),
    ]
    (folder / "Packages").write_text("\n".join(parts))
    lab = rack(1)
    node = lab["node1"]
    node.exec("rm -f /usr/sbin/dockerd /etc/apt/sources.list /etc/apt/sources.list.d/*; rm -rf /var/lib/apt/lists/*")
    # The machine's own engine, whose scripts would stop a daemon; and Debian's way with recommended packages.
    node.exec("rm -f /var/lib/dpkg/info/docker.io.p*; dpkg --purge --force-all docker.io >/dev/null 2>&1")
    node.exec("echo 'APT::Install-Recommends \"true\";' > /etc/apt/apt.conf.d/zz-lab")
    node.exec("rm -rf /run/docker.sock; mkdir -p /srv/packages")
    node.exec("rm -f /var/lib/apt/periodic/update-success-stamp; mkdir -p /var/lib/apt/periodic")
    for file in [*folder.glob("*.deb"), folder / "Packages"]:
        (node.root / REPOSITORY[1:] / file.name).write_bytes(file.read_bytes())
    for path, text in {
        "/etc/apt/sources.list": f"deb [trusted=yes] file:{REPOSITORY} ./\n",
        "/usr/bin/systemctl": SYSTEMCTL,
    }.items():
        node.exec(f"rm -f {path}; cat > {path} <<'END'\n{text}END\nchmod 755 {path}")
    system = {"container_engine": {"name": "docker", "install": True}, "clock_synchronised": None}
    return node, lab.inventory(tmp_path / "lab.py", {"gpu": "cpu", "system": system})


def of_the_lab(node: Node) -> set[str]:
    listed = node.exec("dpkg-query -W -f '${Package} ${db:Status-Status}\\n'").stdout.splitlines()
    names = {line.split()[0] for line in listed if line.endswith(" installed")}
    return {name for name in names if name.startswith("sdlab-") or name in ("docker.io", "docker-ce")}


def engine(product: Product, inventory: Path) -> dict[str, object]:
    ran = product.run("shakedown", "drift", inventory, "--format", "jsonl", "-v")
    findings = [json.loads(line) for line in ran.out.splitlines()]
    found: dict[str, object] = next(each for each in findings if each.get("name") == "container_engine")
    return found


def test_an_engine_is_installed_once_and_taken_back_but_for_what_others_need(
    site: tuple[Node, Path], tmp_path: Path
) -> None:
    node, inventory = site
    product = Product(tmp_path)
    assert (engine(product, inventory)["verdict"], of_the_lab(node)) == ("drift", set())

    ran = product.run("shakedown", "run", inventory, "--no-smoke")
    assert "changed: node1: numa_balancing, container_engine" in ran.text
    assert of_the_lab(node) == {"docker.io", "sdlab-runtime", "sdlab-network"}, ran.text
    assert engine(product, inventory)["actual"] == "docker 1.0"

    again = product.run("shakedown", "run", inventory, "--no-smoke")
    assert "changed: nothing" in again.text

    node.exec("apt-get install -y sdlab-needs-runtime")
    before = of_the_lab(node)
    dry = product.run("shakedown", "rollback", inventory, "--dry")
    line = "node1: package.docker.io: docker.io, sdlab-network, sdlab-runtime removed"
    assert (dry.code, of_the_lab(node)) == (0, before) and f"would restore: {line}" in dry.text
    back = product.run("shakedown", "rollback", inventory)
    assert back.code == 0 and f"restored: {line}" in back.text
    assert of_the_lab(node) == {"sdlab-runtime", "sdlab-needs-runtime"}
    assert node.exec("ls /var/lib/shakedown/before 2>/dev/null", check=False).stdout == ""


def test_an_engine_that_stands_in_the_way_stays(site: tuple[Node, Path], tmp_path: Path) -> None:
    node, inventory = site
    node.exec("apt-get update && apt-get install -y docker-ce")
    ran = Product(tmp_path).run("shakedown", "run", inventory, "--no-smoke")
    assert (ran.code, of_the_lab(node)) == (1, {"docker-ce"})
    assert "Packages need to be removed but remove is disabled" in ran.text
