"""Writes the names of variables that libraries of a training read, as shakedown/recipes/variable_names.json:

    python tests/variable_names.py PREFIX,...=GIT_DIR ... TORCH=FOLDER > shakedown/recipes/variable_names.json

A name counts where a source reads it by a macro of its own, or has it in quotes, in a default of a shell script or as
a literal of its documentation. Numbers in families of names (`HSA_OVERRIDE_GFX_VERSION_0`) are left out.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

NAME = r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+"
FORMS = (
    rf"[\"'`]({NAME})[\"'`=]",
    rf"\$\{{({NAME}):?[-=]",
    rf"\bexport ({NAME})=",
    rf"(?:DECLARE_ENV_VAR\w*|ENV_VAR)\(\s*({NAME})",
    rf"\b(?:release|debug)\(\s*\w+,\s*({NAME}),",
)
PARAMETER = re.compile(r"\b(NCCL|RCCL|OFI_NCCL)_PARAM\w*\(\s*\w+,\s*\"([A-Z0-9_]+)\"")
SUFFIXES = ["c", "cc", "cpp", "cxx", "h", "hpp", "hip", "cu", "in", "md", "rst", "py", "sh", "yaml", "yml"]
NO_VARIABLES = re.compile(r"_(?:H|HPP|PREFIX|MAJOR|MINOR|PATCH|HAVE)$|^(?:NCCL|RCCL)_(?:VERSION_CODE|SUCCESS|ERROR)")


def sources(place: str, words: str) -> str:
    """Return the lines with these words: of a folder, or of the newest commit of a bare git directory."""
    bare = (Path(place) / "objects").is_dir()
    command = ["git", f"--git-dir={place}", "grep"] if bare else ["git", "-C", place, "grep", "--no-index"]
    command += ["-hIE", words, *(["HEAD"] if bare else []), "--", *(f"*.{suffix}" for suffix in SUFFIXES)]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False).stdout


def names(place: str, prefixes: list[str]) -> set[str]:
    """Return the names in the sources that begin with one of the prefixes."""
    own = tuple(f"{prefix}_" for prefix in prefixes)
    text = sources(place, f"({'|'.join(own)})[A-Z0-9]|(NCCL|RCCL)_PARAM")
    result = {name for form in FORMS for name in re.findall(form, text)}
    result.update(f"{family}_{rest}" for family, rest in PARAMETER.findall(text))
    return {name for name in result if name.startswith(own) and not NO_VARIABLES.search(name)}


def main(*places: str) -> None:
    """Write the document of all sources."""
    found: dict[str, set[str]] = {}
    for source in places:
        prefixes, _, place = source.partition("=")
        for name in names(place, prefixes.split(",")):
            found.setdefault(name.partition("_")[0], set()).add(name)
    json.dump({prefix: sorted(found[prefix]) for prefix in sorted(found)}, sys.stdout, indent=0)


if __name__ == "__main__":
    main(*sys.argv[1:])
