"""Runs on a node (python3 >= 3.8, standard library only): pull one image by digest, with progress, and prove it.

Reads one JSON object from standard input, so that no secret stands in argv:
    engine, name, digest, registry, insecure, room_bytes, tries, timeout_s, stall_s, kinds (of what an engine says of a
    failure: pairs of kind and pattern), and optionally username, password,
    ca, compressed_bytes, tagged (what the image is called here)
Progress goes to standard output as plain lines. It fails as `run_script` does.
Credentials live in a folder of mode 0700 that is removed whatever happens.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from typing import Any, Dict, List, Tuple

from shakedown.node.assets.child import Output, running
from shakedown.node.assets.words import Failure, clean, persist, run_script, say

EVERY_S = 10.0  # between two lines of progress
LAYERS = 1000  # an image has at most 127 under docker's overlay2
# Where docker stores images with containerd's image store (Docker Engine's "containerd image store"): not its own root.
CONTAINERD, CONTAINERD_ROOT = "io.containerd.snapshotter", "/var/lib/containerd"
BACKOFF_S = 5.0
# docker's lines, and podman's, which prints nothing when a layer is there.
LAYER = re.compile(
    r"^(?:([0-9a-f]{12}): (Pulling fs layer|Already exists|Download complete|Pull complete)"
    r"|Copying blob (?:sha256:)?([0-9a-f]{12}))"
)


def classify(words: str, kinds: List[List[str]], name: str = "") -> str:
    """Return the kind of a failure by what the engine said, with the image's own name and digest left out: the first of
    `kinds` (with its pattern) that matches."""
    text = re.sub(r"sha256:[0-9a-f]+", "", words.replace(name, "") if name else words)
    return next((kind for kind, pattern in kinds if re.search(pattern, text, re.IGNORECASE)), "engine")


class Engine:
    """docker or podman on this node, with a folder for its credentials and certificates."""

    def __init__(self, job: Dict[str, Any], folder: str) -> None:
        self.job, self.folder = job, folder
        self.docker = job["engine"] == "docker"
        self.options: List[str] = []
        self.transfer: List[str] = []
        self.environment = dict(os.environ)
        if not self.docker:
            self.transfer += ["--authfile", os.path.join(folder, "auth.json")] if job.get("username") else []
            if job.get("ca"):
                with open(os.path.join(folder, "ca.crt"), "w") as handle:
                    handle.write(job["ca"])
                self.transfer += ["--cert-dir", folder]
            if job.get("insecure"):
                self.transfer += ["--tls-verify=false"]
        elif job.get("username"):
            # Another configuration folder would forget which daemon the user talks to.
            host = self.ask("context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
            if host:
                self.environment.setdefault("DOCKER_HOST", host)
            self.options = ["--config", folder]

    def command(self, *arguments: str) -> List[str]:
        return [self.job["engine"], *self.options, *arguments]

    def run(self, *arguments: str, text_in: str = "") -> str:
        """Return standard output; raise Failure with the engine's message."""
        try:
            options: Any = {"capture_output": True, "text": True, "errors": "replace", "timeout": 120}
            done = subprocess.run(self.command(*arguments), input=text_in, env=self.environment, **options)
        except FileNotFoundError:
            raise Failure("engine", "{} is not installed".format(self.job["engine"])) from None
        except subprocess.TimeoutExpired:
            raise Failure("engine", "{} {} did not answer".format(self.job["engine"], arguments[0])) from None
        if done.returncode:
            words = clean(done.stderr or done.stdout)
            raise Failure(classify(words, self.job["kinds"], self.job["name"]), words)
        return str(done.stdout).strip()

    def ask(self, *arguments: str) -> str:
        """Return standard output; nothing where the engine does not know the command."""
        try:
            return self.run(*arguments)
        except Failure:
            return ""

    def room(self) -> Tuple[int, str]:
        """Return the free bytes where the engine stores images, and that folder."""
        template = "{{.DockerRootDir}}" if self.docker else "{{.Store.GraphRoot}}"
        root = self.run("info", "--format", template)
        if self.docker and CONTAINERD in self.ask("info", "--format", "{{json .DriverStatus}}"):
            root = CONTAINERD_ROOT if os.path.exists(CONTAINERD_ROOT) else root
        while root and not os.path.exists(root):
            root = os.path.dirname(root)
        free = os.statvfs(root or "/")
        return free.f_bavail * free.f_frsize, root or "/"

    def login(self) -> None:
        user, registry = self.job["username"], self.job["registry"]
        arguments = ["login", *self.transfer, "--username", user, "--password-stdin", registry]
        self.run(*arguments, text_in=self.job["password"])

    def pull(self, reference: str, deadline: float, root: str) -> None:
        """Try once. Progress is printed now and then; raise Failure with the engine's last words. A connection may be
        cut without a word: no new line of the engine and no change of its disk, for `stall_s`, is one that broke."""
        output, before, free = Layers(), None, os.statvfs(root)
        started = shown = moved = time.monotonic()

        def progress() -> str:
            now = os.statvfs(root)
            written = (free.f_bfree - now.f_bfree) * free.f_frsize
            return output.progress(written, self.job.get("compressed_bytes") or 0)

        with running(self.command("pull", *self.transfer, reference), output, env=self.environment) as runs:
            while runs():
                now = time.monotonic()
                signs = (output.count, os.statvfs(root).f_bfree)
                if signs != before:
                    before, moved = signs, now
                if now - moved > self.job["stall_s"]:
                    raise Failure("transport", "nothing arrived for {:.0f} s".format(now - moved))
                if now > deadline:
                    raise Failure("time", f"not done in {now - started:.0f} s: {progress()}")
                if now - shown >= EVERY_S:
                    shown = now
                    say(f"{reference}: {progress()} ({now - started:.0f} s)")
        if output.code:
            words = " ".join(output.last)
            raise Failure(classify(words, self.job["kinds"], self.job["name"]), words)

    def digests(self, reference: str) -> List[str]:
        """Return the registry digests of an image that is here; none where it is not."""
        text = self.ask("image", "inspect", "--format", "{{json .RepoDigests}}", reference)
        try:
            return [str(entry).partition("@")[2] for entry in json.loads(text or "[]") or []]
        except (ValueError, TypeError, RecursionError):
            raise Failure("engine", "image inspect gives no JSON: {}".format(clean(text, 200))) from None


class Layers(Output):
    """An engine's output of a pull; its lines add up to "3 of 12 layers". Neither docker nor podman prints bytes
    without a terminal: those are what the disk that it stores on has lost since the pull began, to whomever, beside the
    compressed size that the registry gave."""

    def __init__(self) -> None:
        super().__init__()
        self.layers: Dict[str, str] = {}  # with what docker said last of each

    def take(self, line: str) -> None:
        super().take(line)
        found = LAYER.match(line)
        if found and len(self.layers) < LAYERS:
            self.layers[found.group(1) or found.group(3)] = found.group(2) or ""

    def progress(self, written: int = 0, compressed: int = 0) -> str:
        done = sum(words in ("Already exists", "Pull complete") for words in self.layers.values())
        layers = "{} of {} layers".format(done, len(self.layers))
        if not any(self.layers.values()):
            layers = "{} layers begun".format(len(self.layers)) if self.layers else "asking the registry"
        bytes_of = f", {size(written)} written" if written >= 1 << 20 else ""
        return layers + bytes_of + (f", compressed size {size(compressed)}" if compressed and bytes_of else "")


def size(count: int) -> str:
    """Return bytes as a person reads them."""
    return f"{count / 2**30:.1f} GiB" if count >= 1 << 30 else f"{count / 2**20:.0f} MiB"


def pull(job: Dict[str, Any], folder: str) -> None:
    """Pull, verify and tag, where there is room; or look for that room alone. Raise Failure."""
    engine = Engine(job, folder)
    room, root = engine.room()
    if job.get("room_bytes") and room < job["room_bytes"]:
        words = "{} has {:.1f} GiB free, the image may need {:.1f} GiB"
        raise Failure("space", words.format(root, room / 2**30, job["room_bytes"] / 2**30))
    pinned = "{}@{}".format(job["name"], job["digest"])
    if job.get("looks"):  # and no more
        return
    deadline = time.monotonic() + job["timeout_s"]

    def attempt() -> None:
        if job.get("username"):
            engine.login()
        engine.pull(pinned, deadline, root)

    persist(attempt, job["tries"], BACKOFF_S)
    if job["digest"] not in engine.digests(pinned):
        raise Failure("engine", "{} reported success, but {} is not there".format(job["engine"], pinned))
    if job.get("tagged"):
        engine.run("tag", pinned, job["tagged"])
    say(f"{pinned}: there")


def main(job: Dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory(prefix="shakedown-pull-") as folder:
        pull(job, folder)


if __name__ == "__main__":
    run_script(main)
