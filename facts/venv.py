"""Virtual environments on a node: what was installed into them, and whether modules can be imported."""

import shlex
from typing import Any

from shakedown.facts.base import Fact, expect
from shakedown.facts.records import guarded

RECORD = "shakedown.sha256"  # in the environment: the digest of what was asked for, written when all of it is there


class Environment(Fact[dict[str, str]]):
    """
    Returns the digest that a finished installation left in a virtual environment, and why the modules cannot be
    imported there, if they cannot.

    .. code:: python

        {"kind": "venv", "digest": "9f86d081884c7d65...", "import_error": "ImportError: librccl.so: no such file"}
    """

    default = dict

    def command(self, path: str, modules: list[str], rocm: bool = False) -> str:
        program = shlex.quote(imports(modules, rocm))
        return guarded(
            path,
            f"p={shlex.quote(path)}; "
            'if [ ! -e "$p" ] || [ -z "$(ls -A "$p")" ]; then echo kind absent; exit 0; fi; '
            'if [ ! -e "$p/pyvenv.cfg" ]; then echo kind foreign; exit 0; fi; echo kind venv; '
            f'[ ! -e "$p/{RECORD}" ] || echo "digest $(cat "$p/{RECORD}")"; '
            f'why=$(cd / && "$p/bin/python" -I -c {program} 2>&1) || '
            'echo "import_error $(printf %s "$why" | tail -n 1)"; true',
        )

    def process(self, output: Any) -> dict[str, str]:
        return {key: value for key, _, value in (line.partition(" ") for line in output)}


def imports(modules: list[str], rocm: bool = False) -> str:
    """Return a program that imports the modules. With `rocm` it fails unless torch was built for ROCm: pip takes the
    CUDA build from the usual index without a word."""
    expect(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", "the name of a module", *modules)
    lines = [f"import {module}" for module in modules]
    if rocm:
        lines += [
            "import torch",
            "if not torch.version.hip: raise SystemExit(f'torch {torch.__version__} is not built for ROCm')",
        ]
    return "\n".join(lines)
