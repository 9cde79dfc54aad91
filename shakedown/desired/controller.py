"""Files of this machine that a desired state names, and that must be there before anything is begun."""

import os
from collections.abc import Iterator
from pathlib import Path

from shakedown.desired.models import DesiredState, Image, Mirror


def files_of(desired: DesiredState) -> Iterator[tuple[str, str]]:
    """Each file with its dotted path."""
    registries: dict[str, Image | Mirror] = {f"images.{name}": image for name, image in desired.images.items()}
    registries |= {f"pulls.mirrors.{name}": mirror for name, mirror in desired.pulls.mirrors.items()}
    for path, registry in registries.items():
        for key in ("ca_file", "password_file"):
            if file := getattr(registry, key):
                yield f"{path}.{key}", file
    if not os.environ.get("HF_TOKEN"):  # exported, it is used and no file is read
        for section in ("smoke", "benchmark"):
            if file := getattr(getattr(desired, section), "hf_token_file", None):
                yield f"{section}.hf_token_file", file
    for file in desired.source.patches if desired.source else []:
        yield "source.patches", file
    if desired.rdma.provider and desired.rdma.provider.source:
        yield "rdma.provider.source", desired.rdma.provider.source


def missing(desired: DesiredState) -> Iterator[tuple[str, str]]:
    """Those that are not there."""
    for path, file in files_of(desired):
        if not Path(file).expanduser().is_file():
            yield path, file
