"""Builds a libamd_smi.so that answers for GPUs that are not there, so that AMD's own Python package can be tried.

Its values are ours: the tests show that the package's answers, errors and hangs are understood, not how hardware
behaves. Every symbol that the package looks for is there; those that libamd_smi.c lacks answer NOT_SUPPORTED.
"""

from __future__ import annotations

import re
import subprocess
from importlib.metadata import distribution
from pathlib import Path

_SOURCE = Path(__file__).with_name("libamd_smi.c")


def wanted_symbols() -> list[str]:
    """The functions that the installed package takes from its library when it is imported."""
    wrapper = Path(str(distribution("amdsmi").locate_file("amdsmi/amdsmi_wrapper.py"))).read_text()
    return sorted(set(re.findall(r"_libraries\['libamd_smi\.so'\]\.(\w+)", wrapper)))


def build(folder: Path) -> Path:
    """Compile the library into `folder`; returns its path. Raises CalledProcessError with gcc's words on stderr."""
    written = set(re.findall(r"^uint32_t (amdsmi_\w+)\(", _SOURCE.read_text(), re.MULTILINE))
    stubs = "".join(
        f"unsigned {name}(void) {{ return lab_status(__func__, 2); }}\n"
        for name in wanted_symbols()
        if name not in written
    )
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libamd_smi.so"
    command = ["gcc", "-w", "-O1", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-x", "c", "-"]
    declared = "unsigned lab_status(const char *, unsigned);\n" + stubs
    subprocess.run(command, input=declared.encode(), check=True)
    configure(folder)
    return library


def configure(folder: Path, *lines: str, **values: object) -> None:
    """What the library in `folder` says from now on, in the terms of libamd_smi.c; everything else is healthy."""
    text = [*lines, *(f"{key}={value}" for key, value in values.items())]
    (folder / "libamd_smi.conf").write_text("".join(f"{line}\n" for line in text))
