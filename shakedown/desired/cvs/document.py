"""Reading the file: JSON without comments, as parameters with their dotted paths, and what is noted on each."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from shakedown.common.secrets import MASK, is_secret
from shakedown.common.text import load_json, printable, shallow
from shakedown.desired.cvs.tables import other_names
from shakedown.desired.problems import Problem, listed, shown

Kind = Literal["derived", "refused", "flagged"]


@dataclass(frozen=True)
class Remark:
    """A note on the file. `derived`: nodes answer it. `refused`: not taken over. `flagged`: taken, but may not hold."""

    kind: Kind
    path: str  # in the file
    value: str
    why: str

    def __str__(self) -> str:
        return printable(f"{self.path} = {self.value}: {self.kind}: {self.why}")


class CvsError(ValueError):
    """A file that cannot be imported. `problems` holds every error, not the first; `remarks` what is noted besides."""

    def __init__(self, problems: Sequence[Problem], remarks: Sequence[Remark] = ()) -> None:
        self.problems = tuple(problems)
        self.remarks = tuple(remarks)
        super().__init__(listed("the CVS file has", self.problems))


_LIMIT = 16 << 20  # characters; those of CVS have some 20,000
PLACEHOLDER = "<changeme>"
_NODES = re.compile(r"\bfor (\d+) nodes\b")


@dataclass(frozen=True)
class Given:
    """One parameter of the file: its name in parameters.toml, its dotted path in the file, and its value."""

    name: str
    path: str
    value: Any

    @property
    def is_open(self) -> bool:
        """Whether the value is left for a person to fill in: <changeme>, or <changeme> with an explanation."""
        return isinstance(self.value, str) and PLACEHOLDER in self.value

    @property
    def shown(self) -> str:
        """The value for a message. A secret in the file is not repeated."""
        if is_secret(self.path.rpartition(".")[2]):
            return MASK
        return shown(self.value, 400)  # the devices of a node have some 150 characters


def read(path: Path, where: str) -> dict[str, Any]:
    """Return the document. Raise CvsError where it cannot be read, is no JSON object, or has a key twice."""
    twice: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice.extend(key for key, count in Counter(name for name, _ in pairs).items() if count > 1)
        return dict(pairs)

    try:
        if not path.is_file() and not path.is_dir() and path.exists():
            raise CvsError([Problem(where, "file", str(path), "a file (a device or a FIFO may have no end)")])
        with path.open("rb") as file:
            text = file.read(_LIMIT + 1).decode("utf-8")
        document = shallow(load_json(text, _LIMIT, unique))
    except OSError as error:
        raise CvsError([Problem(where, "file", str(path), f"a readable file ({error.strerror})")]) from error
    except UnicodeDecodeError as error:
        raise CvsError([Problem(where, "file", str(path), f"UTF-8 ({error.reason})")]) from error
    except ValueError as error:
        raise CvsError([Problem(where, "file", str(path), f"JSON ({error})")]) from error
    if not isinstance(document, dict):
        raise CvsError([Problem(where, "file", type(document).__name__, "a JSON object")])
    if twice:
        raise CvsError([Problem(where, key, "given twice", "one value") for key in dict.fromkeys(twice)])
    return document


def nodes_of_figures(document: Mapping[str, Any]) -> int | None:
    """For how many nodes the file's comment says that its figures are."""
    config = document.get("config")
    comments = config.get("_comments__") if isinstance(config, dict) else None
    match = _NODES.search(comments) if isinstance(comments, str) else None
    return int(match[1]) if match else None


def without_comments(value: Any) -> Any:
    """Return the value without keys that begin with an underscore, at every depth."""
    if isinstance(value, dict):
        return {key: without_comments(item) for key, item in value.items() if not key.startswith("_")}
    if isinstance(value, list):
        return [without_comments(item) for item in value]
    return value


def parameters(values: Mapping[str, Any], known: Collection[str], name: str = "", path: str = "") -> Iterator[Given]:
    """Yield the parameters below a part (`name`, `path`) of the document. A dictionary is one where it is known; others
    are walked into. A name of the present form becomes its row's; the path stays the file's."""
    others = other_names()
    for key, value in values.items():
        own, at = f"{name}.{key}".lstrip("."), f"{path}.{key}".lstrip(".")
        below = [*others, *(known if own not in known else ())] if own not in others and value else []
        if isinstance(value, dict) and any(other.startswith(f"{own}.") for other in below):
            yield from parameters(value, known, own, at)
        else:
            yield Given(others.get(own, own), at, value)


@dataclass
class Imported:
    """A job of a CVS file as a site's layer, with notes. `values` keeps <changeme> for what no node can answer, and a
    layer above may give it; otherwise it is refused. `open` lists these with their paths."""

    name: str  # "cvs FILE"
    values: dict[str, Any] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)  # errors: with one of them there is no layer
    open: list[Problem] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)

    def of_kind(self, kind: Kind) -> list[Remark]:
        """Return the remarks of one kind."""
        return [remark for remark in self.remarks if remark.kind == kind]

    def wrong(self, given: Given, expected: str) -> None:
        """Note an error: the file cannot be imported."""
        self.problems.append(Problem(self.name, given.path, given.shown, expected))

    def leave_open(self, given: Given, target: str, missing: bool = False) -> None:
        """Note a value that a person has to give, here or as `target` in a layer above."""
        expected = f"a value{'' if missing else f' in place of {PLACEHOLDER}'} ({target})"
        self.open.append(Problem(self.name, given.path, "nothing" if missing else given.shown, expected))

    def derive(self, given: Given, reason: str) -> None:
        """Note a value that the nodes answer."""
        self.remarks.append(Remark("derived", given.path, given.shown, reason))

    def refuse(self, given: Given, reason: str) -> None:
        """Note a value that is not taken over."""
        self.remarks.append(Remark("refused", given.path, given.shown, reason))

    def flag(self, given: Given, reason: str) -> None:
        """Note a value that is taken over and may not hold."""
        self.remarks.append(Remark("flagged", given.path, given.shown, reason))
