"""Software that a job finds on the node besides ROCm: MPI, and ROCm's communication library. Files are looked for and
nothing is started, so it costs no time."""

from __future__ import annotations

import os
import re
from typing import Optional

from . import rocm
from .tree import Part, Tree, Unreadable, attempt, attempt_or

# PATH's folders, those of RHEL's openmpi and mpich packages, and where MPI is put that was built for ROCm.
_MPI = ["/usr/bin", "/usr/local/bin", "/usr/lib64/openmpi/bin", "/usr/lib64/mpich/bin", "/opt/ompi/bin"]
_MPI += ["/opt/openmpi/bin"]
_VERSION = re.compile(r"^#define NCCL_(MAJOR|MINOR|PATCH) (\d+)\s*$", re.MULTILINE)
_RCCL = "librccl.so.1"
_LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/lib")


def parse_version(lines: list[str]) -> Optional[str]:
    """Return "2.22.3" for the three lines `#define NCCL_MAJOR 2`, ... of rccl.h."""
    found = dict(_VERSION.findall("\n".join(lines)))
    return "{MAJOR}.{MINOR}.{PATCH}".format(**found) if len(found) == 3 else None


def mpi(tree: Tree) -> str:
    """Return which MPI there is, and where."""
    for folder in _MPI:
        if tree.exists(folder + "/mpirun"):
            kind = "Open MPI" if tree.exists(folder + "/ompi_info") else "MPI"
            return "{} ({}/mpirun)".format(kind, folder)
    raise Unreadable("missing", "mpirun in {}".format(", ".join(_MPI)))


def rccl(tree: Tree) -> str:
    """Return the library with its version: of the development package's header, else of its file name."""
    path = tree.ask("rocm " + _RCCL, rocm.find, tree.root, "lib/" + _RCCL)
    path = path or tree.first(*(folder + "/" + _RCCL for folder in _LIBRARIES))
    if path is None:
        raise Unreadable("missing", _RCCL)
    above = path.rpartition("/lib/")[0]
    header = tree.first(above + "/include/rccl/rccl.h", above + "/include/rccl.h")
    version = parse_version(attempt_or([], tree.lines, header) if header else [])
    version = version or os.path.basename(tree.followed(path)).partition(".so.")[2]
    return "{} ({})".format(version, path)


def read(tree: Tree) -> Part:
    return {"mpi": attempt(mpi, tree), "rccl": attempt(rccl, tree)}
