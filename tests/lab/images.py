"""Container images made without a container engine: tar layers, a configuration and a manifest, all from local files.

`training()` is the stand-in for a ROCm Megatron-LM image: Debian, libibverbs with the bnxt_re provider library, torch
and Megatron-Core from this virtual environment, and the small GPT where Llama's scripts are in the original. Its entry
point has to be cleared, as that of the original has. `tiny()` is 2 MB of busybox, for tests that need a container and
nothing in it.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from tests.lab.cache import CACHE, cached, debian
from tests.lab.machine import require

HERE = Path(__file__).parent
WORKLOAD = HERE.parents[1] / "shakedown/jobs/workload"
LLAMA = "workspace/Megatron-LM/examples/llama"
DISTRIBUTIONS = ("torch", "megatron-core", "numpy")
LEFT_OUT = ("torch/bin/protoc", "torch/bin/test_", "torch/include/", "torch/test/")
"""Parts of torch that training never opens: a fifth of its size."""

Filler = Callable[[tarfile.TarFile], None]

LAYER_TYPE = "application/vnd.docker.image.rootfs.diff.tar"
CONFIG_TYPE = "application/vnd.docker.container.image.v1+json"
MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"


@dataclass(frozen=True)
class Image:
    """An image by its parts. `layers` are uncompressed tar files, lowest first."""

    name: str
    layers: tuple[Path, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ("/bin/sh",)
    labels: Mapping[str, str] = field(default_factory=dict)

    def config(self) -> bytes:
        run = {
            "Env": [f"{key}={value}" for key, value in self.environment.items()],
            "Entrypoint": list(self.entrypoint) or None,
            "Cmd": list(self.command),
            "Labels": dict(self.labels),
        }
        diffs = {"type": "layers", "diff_ids": [digest(layer) for layer in self.layers]}
        history = [{"created_by": "tests/lab/images.py"} for _ in self.layers]
        document = {"architecture": "amd64", "os": "linux", "config": run, "rootfs": diffs, "history": history}
        return json.dumps(document, sort_keys=True).encode()

    def manifest(self) -> bytes:
        config = {"mediaType": CONFIG_TYPE, "size": len(self.config()), "digest": sha256(self.config())}
        layers = [{"mediaType": LAYER_TYPE, "size": p.stat().st_size, "digest": digest(p)} for p in self.layers]
        head = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE}
        return json.dumps({**head, "config": config, "layers": layers}).encode()


def tiny(name: str = "sdlab/tiny", note: str = "", ballast_mb: int = 0) -> Image:
    """Busybox. Another `note` gives another digest; `ballast_mb` adds a layer of so many MB, for pulls that last."""
    require("busybox")
    busybox = Path("/bin/busybox") if Path("/bin/busybox").exists() else Path("/usr/bin/busybox")
    links = ("sh", "cat", "ls", "sleep", "id", "uname", "env", "mount", "true", "false", "stat", "ip", "hostname")

    def shell(tar: tarfile.TarFile) -> None:
        add_file(tar, "bin/busybox", busybox.read_bytes(), 0o755)
        for link in links:
            add_link(tar, f"bin/{link}", "busybox")
        add_file(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
        add_file(tar, "etc/note", note.encode())

    # sha512 of a counter: the same at every build, and nothing that a compressing link could shrink.
    def ballast(tar: tarfile.TarFile) -> None:
        blocks = (hashlib.sha512(f"{note}{i}".encode()).digest() for i in range(ballast_mb * 2**20 // 64))
        add_file(tar, "ballast", b"".join(blocks))

    stem = hashlib.sha256(note.encode()).hexdigest()[:8]
    layers = [layer(f"tiny-{stem}", f"{digest(busybox)} {links} {note}", shell)]
    if ballast_mb:
        layers.append(layer(f"ballast-{ballast_mb}-{stem}", note, ballast))
    return Image(name, tuple(layers))


def training(name: str = "sdlab/megatron-lm") -> Image:
    """The stand-in training image: about 0.2 GB of Debian and 0.8 GB of torch and Megatron-Core, plus the workload."""
    base = debian("training-base", "bookworm", (HERE / "training_packages.txt").read_text().split())
    return Image(
        name,
        (base, _torch_layer(), _workload_layer()),
        environment={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
        entrypoint=("/bin/echo", "the entry point of this image has not been cleared; it was asked for:"),
        command=("/bin/bash",),
    )


def layer(name: str, recipe: str, fill: Filler) -> Path:
    """A cached tar layer: `fill` adds the members, in a fixed order, with owner root."""

    def build(path: Path) -> None:
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
            fill(tar)

    return cached(f"layer-{name}", recipe, build)


def add_file(tar: tarfile.TarFile, path: str, content: bytes, mode: int = 0o644, owner: int = 0) -> None:
    member = tarfile.TarInfo(path)
    member.size, member.mode, member.uid, member.gid = len(content), mode, owner, owner
    tar.addfile(member, io.BytesIO(content))


def add_link(tar: tarfile.TarFile, path: str, target: str) -> None:
    member = tarfile.TarInfo(path)
    member.type, member.linkname = tarfile.SYMTYPE, target
    tar.addfile(member)


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def digest(path: Path) -> str:
    """`sha256:...` of a file; remembered beside files of the cache, since the large ones take seconds."""
    note = path.with_name(f"{path.name}.sha256")
    if note.exists() and note.stat().st_mtime >= path.stat().st_mtime:
        return note.read_text()
    with path.open("rb") as file:
        value = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    if path.parent == CACHE:
        note.write_text(value)
    return value


def _torch_layer() -> Path:
    """What `DISTRIBUTIONS` need, from this virtual environment, where Debian's python of the same version looks.

    Compiled files come along, and the times of their sources by which python knows that they hold: to compile
    Megatron-Core anew in every container takes 5 s of a core, as nobody would have it on a rack.
    """
    found = list(_closure())
    recipe = " ".join(sorted(f"{d.name}=={d.version}" for d in found)) + f" {sys.version_info[:2]} {LEFT_OUT} compiled"
    target = "usr/local/lib/python3.11/dist-packages"
    launcher = b"#!/usr/bin/python3\nimport sys\nfrom torch.distributed.run import main\nsys.exit(main())\n"

    def fill(tar: tarfile.TarFile) -> None:
        add_file(tar, "usr/local/bin/torchrun", launcher, 0o755)
        for distribution in found:
            for file in sorted(distribution.files or []):
                source = Path(str(distribution.locate_file(file)))
                name = str(file)
                if not source.is_file() or name.startswith(("..", *LEFT_OUT)):
                    continue
                state = source.stat()
                member = tarfile.TarInfo(f"{target}/{name}")
                member.size, member.mode, member.mtime = state.st_size, state.st_mode & 0o755, int(state.st_mtime)
                with source.open("rb") as content:
                    tar.addfile(member, content)

    return layer("torch", recipe, fill)


def _workload_layer() -> Path:
    files = sorted(path for path in WORKLOAD.iterdir() if path.suffix in (".py", ".sh"))
    recipe = " ".join(f"{path.name}:{sha256(path.read_bytes())}" for path in files)

    def fill(tar: tarfile.TarFile) -> None:
        for path in files:
            names = ("train_llama3.sh", "train_llama2.sh") if path.name == "train_llama.sh" else (path.name,)
            for name in names:
                add_file(tar, f"{LLAMA}/{name}", path.read_bytes(), 0o755 if path.suffix == ".sh" else 0o644)

    return layer("workload", recipe, fill)


def _closure() -> Iterator[metadata.Distribution]:
    """`DISTRIBUTIONS` and, without extras, all they require on this platform."""
    waiting, seen = list(DISTRIBUTIONS), set[str]()
    while waiting:
        name = waiting.pop()
        key = name.lower().replace("_", "-")
        if key in seen:
            continue
        seen.add(key)
        distribution = metadata.distribution(name)
        yield distribution
        needed = [Requirement(text) for text in distribution.requires or []]
        waiting += [r.name for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})]
