"""A real Kubernetes API server with etcd and the scheduler, on loopback; no kubelet, so no pod ever runs.

    with serve(folder) as cluster:
        cluster.kubeconfig("admin")

There is no binary of it in Debian 12, but the source: it is built once (5 to 15 minutes of two cores) and cached.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.kubernetes_api import kubeconfig
from tests.lab.cache import cached
from tests.lab.machine import DIES_WITH_US, SBIN_PATH, LabError, require, run

_NEEDS = ("dpkg-source", "etcd", "file /usr/lib/go-1.19/bin/go", "jq", "make", "rsync")
_SOURCE = "deb-src http://deb.debian.org/debian bookworm main"
_PACKAGE = "kubernetes"
_PARTS = ("kube-apiserver", "kube-scheduler")
_GO = "/usr/lib/go-1.19/bin"
USERS = ("admin", "shakedown", "nobody")
_READY_S = 120.0


def binaries() -> Path:
    """The folder with kube-apiserver and kube-scheduler."""
    require(*_NEEDS)
    return cached("kubernetes", f"{_SOURCE} {_PACKAGE} {_PARTS}", _build)


def _build(path: Path) -> None:
    work = path.with_name(path.name + ".build")
    shutil.rmtree(work, ignore_errors=True)
    (work / "lists/partial").mkdir(parents=True)
    (work / "sources.list").write_text(_SOURCE + "\n")
    apt = ["apt-get", "-qq", "-o", f"Dir::Etc::sourcelist={work}/sources.list", "-o", "Dir::Etc::sourceparts=-"]
    apt += ["-o", f"Dir::State::lists={work}/lists"]
    run([*apt, "update"], timeout=600)
    run([*apt, "source", "--download-only", _PACKAGE], timeout=1200, cwd=work)
    (description,) = work.glob("*.dsc")
    run(["dpkg-source", "--no-check", "-x", description.name, "src"], timeout=600, cwd=work)
    place = work / "go/src/k8s.io/kubernetes"
    place.parent.mkdir(parents=True)
    place.symlink_to(work / "src")
    made = work / "src/_output/local/bin/linux/amd64"
    for part in _PARTS:
        env = [f"PATH={_GO}:{SBIN_PATH}", f"GOPATH={work}/go", f"GOCACHE={work}/cache", "GO111MODULE=off"]
        command = ["nice", "-n", "19", "env", *env, "make", f"WHAT=cmd/{part}", "GOLDFLAGS=-s -w"]
        run(command, timeout=3600, cwd=place)
    path.mkdir()
    for part in _PARTS:
        shutil.copy2(made / part, path / part)
    run(["chmod", "-R", "u+w", str(work)], timeout=120)
    shutil.rmtree(work)


class Cluster:
    """A server that answers. `url`: where."""

    def __init__(self, folder: Path, url: str, tokens: dict[str, str]) -> None:
        self._folder, self.url, self._tokens = folder, url, tokens

    def kubeconfig(self, user: str) -> Path:
        """For one of USERS: `admin` may do everything, the others only what they are given."""
        place = self._folder / user
        place.mkdir(exist_ok=True)
        return kubeconfig(place, self.url, token=self._tokens[user], certificate=self._folder / "certs/apiserver.crt")


@contextmanager
def serve(folder: Path) -> Iterator[Cluster]:
    """etcd, API server and scheduler, with nothing kept; they end with the context."""
    built = binaries()
    client, peer, api, scheduler = _ports(4)
    tokens = {user: secrets.token_hex(16) for user in USERS}
    groups = {"admin": "system:masters"}
    lines = [f'{token},{user},{user},"{groups.get(user, "lab")}"' for user, token in tokens.items()]
    (folder / "tokens.csv").write_text("\n".join(lines) + "\n")
    run(["openssl", "genrsa", "-out", str(folder / "accounts.key"), "2048"])
    etcd = f"http://127.0.0.1:{client}"
    started: list[subprocess.Popen[bytes]] = []

    def start(*argv: str) -> None:
        name = Path(argv[0]).name
        with (folder / f"{name}.log").open("wb") as log:
            started.append(
                subprocess.Popen(
                    [*DIES_WITH_US, *argv], stdout=log, stderr=log, env={**os.environ, "PATH": SBIN_PATH}, cwd=folder
                )
            )

    try:
        start("etcd", f"--data-dir={folder}/etcd", f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}",
              f"--listen-peer-urls=http://127.0.0.1:{peer}")  # fmt: skip
        start(
            str(built / "kube-apiserver"), f"--etcd-servers={etcd}", "--bind-address=127.0.0.1",
            f"--secure-port={api}", f"--cert-dir={folder}/certs", f"--token-auth-file={folder}/tokens.csv",
            "--authorization-mode=RBAC", "--service-cluster-ip-range=10.96.0.0/24",
            "--disable-admission-plugins=ServiceAccount", "--service-account-issuer=https://lab.invalid",
            f"--service-account-signing-key-file={folder}/accounts.key",
            f"--service-account-key-file={folder}/accounts.key",
        )  # fmt: skip
        cluster = Cluster(folder, f"https://127.0.0.1:{api}", tokens)
        _until_ready(cluster, started, folder)
        config = cluster.kubeconfig("admin")
        start(str(built / "kube-scheduler"), f"--kubeconfig={config}", "--leader-elect=false", "--port=0",
              f"--secure-port={scheduler}", "--bind-address=127.0.0.1", f"--cert-dir={folder}/scheduler")  # fmt: skip
        yield cluster
    finally:
        for process in reversed(started):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait(30)


def _until_ready(cluster: Cluster, started: Sequence[subprocess.Popen[bytes]], folder: Path) -> None:
    from kubernetes import client, config

    deadline, why = time.monotonic() + _READY_S, "no answer"
    while time.monotonic() < deadline and all(process.poll() is None for process in started):
        try:
            api: Any = client.CoreV1Api(config.new_client_from_config(str(cluster.kubeconfig("admin"))))
            api.read_namespace("default", _request_timeout=5)
            return
        except Exception as error:
            why = str(error)
            time.sleep(0.3)
    logs = "\n".join(path.read_text(errors="replace")[-1500:] for path in sorted(folder.glob("*.log")))
    raise LabError(f"the API server is not ready: {why}\n{logs}")


def _ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports
