"""The files of a new site: pyinfra's own layout, with thin deploy files over the installed package."""

from collections.abc import Mapping
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2]
# deploy/ and the inventories stand once in the repository, at its root, where a reader looks for them and the
# documents name them. A wheel has no root: there they are in the package, beside the rest of the site
# (force-include in pyproject.toml). Only one of the two places is ever there.
_SITE = _PACKAGE / "site"
_SHARED = _SITE if (_SITE / "deploy").is_dir() else _PACKAGE.parent
DEPLOYS = _SHARED / "deploy"


class SiteError(ValueError):
    """A folder in which no site can be laid out: everything that is in the way, one per line."""


def site_files() -> dict[str, Path]:
    """Return the files of a new site: path in it -> the file that is copied there."""
    own = {"README.md": "README.md", ".gitignore": "gitignore", "group_data/all.py": "group_data/all.py"}
    found = {name: _SITE / source for name, source in own.items()}
    found |= {f"inventories/{name}": _SHARED / "inventories" / name for name in ("local.py", "rack.py")}
    return found | {f"deploy/{file.name}": file for file in sorted(DEPLOYS.glob("*.py"))}


def lay_out(folder: Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Write files into a folder, which is made if need be; returns their paths. Raises SiteError, and has then
    written nothing, where one of them is there or could not be made; OSError where writing fails on the way."""
    files = {folder / name: content for name, content in contents.items()}
    if found := [problem for path in files if (problem := _in_the_way(path, folder))]:
        raise SiteError("\n".join(dict.fromkeys(found)))
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:  # x: whoever came in between keeps what is theirs
            file.write(content)
    return list(files)


def _in_the_way(path: Path, folder: Path) -> str:
    """Why a file cannot be made; empty where it can. Links count as what they are: nothing is written through one."""
    if path.is_symlink() or path.exists():
        return f"{path}: is there already"
    for above in path.parents:
        if above.is_symlink() and above != folder:
            return f"{above}: is a link"
        if above.exists() and not above.is_dir():
            return f"{above}: is no folder"
        if above == folder:
            break
    return ""
