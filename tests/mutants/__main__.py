"""Do the tests of an area notice when one condition in it is flipped?

    python -m tests.mutants [--area gates] [--count 200] [--seed N] [--all]        # `make mutants`

cosmic-ray finds the places (a comparison, `and` or `or`, a sign, a branch) and makes the change, one at a time, in a
copy of the tree. The tests that name the module and the area's own (areas.toml) then run and have to fail. What
survives is shown as a diff. A change that no test can notice, since the program does the same with it, stands in
equivalent.toml with the reason.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import itertools
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

from tests.mutants.running import Key, Seen, parts, server

PROJECT = Path(__file__).parents[2]
HERE = Path(__file__).parent
_COMPARISONS = {
    "Eq": ("NotEq",), "NotEq": ("Eq",), "Is": ("IsNot",), "IsNot": ("Is",),
    "Lt": ("LtE", "GtE"), "LtE": ("Lt", "Gt"), "Gt": ("GtE", "LtE"), "GtE": ("Gt", "Lt"),
}  # fmt: skip
OPERATORS = (
    *(f"core/ReplaceComparisonOperator_{one}_{other}" for one, others in _COMPARISONS.items() for other in others),
    "core/ReplaceAndWithOr", "core/ReplaceOrWithAnd", "core/AddNot", "core/ReplaceUnaryOperator_Delete_Not",
    "core/ReplaceUnaryOperator_Delete_USub", "core/ReplaceBinaryOperator_Add_Sub", "core/ReplaceBinaryOperator_Sub_Add",
)  # fmt: skip
PATCHED = ("tests/operations/", "tests/facts/")  # pyinfra's test package has gevent patch the process


@dataclass(frozen=True)
class Place:
    """Where a change can be made: the `occurrence`-th place of an operator in a module."""

    area: str
    module: str
    operator: str
    occurrence: int


@dataclass(frozen=True)
class Mutant:
    """One change, made."""

    area: str
    module: str
    operator: str
    diff: str
    code: str

    def __str__(self) -> str:
        return f"{self.area}: {self.module}: {self.operator.removeprefix('core/')}\n{self.diff}"


def areas() -> dict[str, dict[str, list[str]]]:
    """Area -> its modules and its tests, as patterns below the project."""
    document: dict[str, dict[str, list[str]]] = tomllib.loads((HERE / "areas.toml").read_text("utf-8"))
    return document


def files(patterns: Sequence[str]) -> list[str]:
    """Return the project's files that fit, sorted. Raises ValueError for a pattern that none fits."""
    found: set[str] = set()
    for pattern in patterns:
        fitting = {str(path.relative_to(PROJECT)) for path in PROJECT.glob(pattern)}
        if not fitting:
            raise ValueError(f"areas.toml: no file fits {pattern}")
        found |= fitting
    return sorted(found)


def modules() -> dict[str, list[str]]:
    """Return area -> its modules, each in the first area that names it."""
    taken: set[str] = set()
    found: dict[str, list[str]] = {}
    for name, area in areas().items():
        found[name] = [module for module in files(area["modules"]) if module not in taken]
        taken.update(found[name])
    return found


def places(area: str, modules: Sequence[str]) -> Iterator[Place]:
    """Yield every place of an area. The changes are made for those alone that are drawn: that is most of the work."""
    for module in modules:
        nodes = list(ast_nodes(get_ast((PROJECT / module).read_text("utf-8"))))
        for name in OPERATORS:
            operator = get_operator(name)()
            count = sum(1 for node in nodes for _ in operator.mutation_positions(node))
            yield from (Place(area, module, name, occurrence) for occurrence in range(count))


def change(place: Place) -> Mutant | None:
    """Make the change of a place; None where it changes nothing, or where no test could notice it."""
    code = (PROJECT / place.module).read_text("utf-8")
    changed = mutate_code(code, get_operator(place.operator)(), place.occurrence)
    try:
        if not changed or ast.dump(ast.parse(changed)) == ast.dump(ast.parse(code)):
            return None
    except SyntaxError:  # `not` before an assignment
        return None
    mutant = Mutant(place.area, place.module, place.operator, _diff(code, changed), changed)
    return None if is_equivalent(mutant) else mutant


def draw(every: Sequence[Place], count: int, seed: int | None) -> Iterator[Mutant]:
    """Yield as many changes as are wanted, of places in random order, or in theirs."""
    places = every if seed is None else random.Random(seed).sample(every, len(every))
    made = (mutant for place in places if (mutant := change(place)) is not None)
    return itertools.islice(made, count)


def tests_of(module: str, area: Sequence[str]) -> list[list[str]]:
    """Return the area's cases, the tests that name the module, and the area's others: the first are the fastest."""
    dotted = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    dotted = dotted if dotted.startswith("shakedown.") else f"shakedown.{dotted}"
    package, _, name = dotted.rpartition(".")
    imported = rf"from {re.escape(package)} import (?:.*|\([^)]*)\b{name}\b"
    run = rf"|-m\W+{re.escape(package)}\b(?!\.)" if name == "__main__" else ""
    naming = re.compile(rf"{re.escape(dotted)}\b|{imported}|/{name}\.py\b{run}")
    first = [test for test in files(["tests/unit/test_*.py", "tests/property/test_*.py"]) if naming.search(_text(test))]
    of_area = [test for test in area if test.endswith("_cases.py")]
    return [of_area, [t for t in first if t not in of_area], [t for t in area if t not in first and t not in of_area]]


@cache
def _text(test: str) -> str:
    return (PROJECT / test).read_text("utf-8")


def _diff(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return "\n".join(line for line in lines if not line.startswith(("---", "+++")))


def equivalent() -> list[dict[str, Any]]:
    """The changes that nobody can notice: module ("*": any), the line with the change (`after`), the reason (`why`)."""
    path = HERE / "equivalent.toml"
    found: list[dict[str, Any]] = tomllib.loads(path.read_text("utf-8")).get("mutant", [])
    return found


def is_equivalent(mutant: Mutant) -> bool:
    """Whether it stands among those."""
    added = [line[1:].strip() for line in mutant.diff.splitlines() if line.startswith("+")]
    return any(entry["module"] in (mutant.module, "*") and [entry["after"]] == added for entry in equivalent())


def copy(folder: Path) -> Path:
    """The tracked files as they are, in a folder of their own."""
    listed = subprocess.run(["git", "ls-files"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / name, target, follow_symlinks=False)
    return folder


class Tests:
    """Those of the areas, collected in a copy of the tree; what pyinfra patches has a process of its own."""

    def __init__(self, folder: Path, tests: Sequence[str], until: ExitStack) -> None:
        kinds = [[test for test in tests if test.startswith(PATCHED) is patched] for patched in (True, False)]
        self.folder = folder
        self.changes = 0
        self.servers = [until.enter_context(server(folder, part)) if part else None for part in kinds]

    def _ask(self, file: str, request: object) -> Any:
        pipe = self.servers[0 if file.startswith(PATCHED) else 1]
        assert pipe is not None
        pipe.send(request)
        return pipe.recv()

    def _seen(self, file: str, looks: dict[str, dict[str, Seen]]) -> dict[str, Seen]:
        """Return what the tests of a file call; those that fail without any change are left out."""
        if file not in looks:
            seen = self._ask(file, file)
            if isinstance(seen, str):
                raise RuntimeError(f"{file}: {seen}")
            broken = [name for name, test in seen.items() if test.failed]
            if broken:
                print(f"left out, since they fail without any change: {', '.join(broken)}", flush=True)
            looks[file] = {name: test for name, test in seen.items() if not test.failed}
        return looks[file]

    def noticed_by(self, mutant: Mutant, looks: dict[str, dict[str, Seen]], tests: list[list[str]]) -> str | None:
        """Return the test that fails once the change is made, or None; `tests` are those of `tests_of`."""
        target = self.folder / mutant.module
        before, when = target.read_text("utf-8"), target.stat()
        changed = parts(before, mutant.code, mutant.module)
        ran: set[str] = set()
        for stage, files in enumerate([*tests, tests[-1]]):  # at last the area's tests that start a process
            kinds = [[file for file in files if file.startswith(PATCHED) is patched] for patched in (True, False)]
            for kind in filter(None, kinds):
                seen = {name: test for file in kind for name, test in self._seen(file, looks).items()}
                if stage == len(tests):
                    seen = {name: test for name, test in seen.items() if test.processes and name not in ran}
                names = _in_order(seen, mutant.module, changed, stage in (1, len(tests)))
                ran.update(names)
                limit = 30 + 5 * sum(seen[name].cpu_s for name in names)
                target.write_text(mutant.code, "utf-8")
                self.changes += 1
                os.utime(target, (self.changes, self.changes))  # no compiled file fits, of before or of another change
                try:
                    if names and (failed := self._ask(kind[0], (mutant.module, before, mutant.code, names, limit))):
                        return str(failed)
                finally:
                    target.write_text(before, "utf-8")
                    os.utime(target, ns=(when.st_atime_ns, when.st_mtime_ns))
        return None


def _in_order(seen: dict[str, Seen], module: str, changed: Mapping[Key, object] | None, all_kinds: bool) -> list[str]:
    """Return the tests that call a changed function, the fastest first; with `all_kinds` those too that start a
    process, since what it calls is not seen, or all where none calls the function.

    Where the change is outside of any function, all that call the module come first.
    """
    calls = {
        name
        for name, test in seen.items()
        if (called := test.functions.get(module)) and (changed is None or called & set(changed))
    }
    chosen = set(calls)
    if all_kinds:
        chosen |= {name for name, test in seen.items() if test.processes or changed is None or not calls}
    return sorted(chosen, key=lambda name: (name not in calls, seen[name].cpu_s))


def main() -> int:
    """Exit code 1 where fewer than 95 % are noticed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--area", action="append", choices=list(areas()), help="only this one; repeatable")
    parser.add_argument("--module", action="append", help="only this one, as a path; repeatable")
    parser.add_argument("--count", type=int, default=300, help="changes, drawn at random over the areas")
    parser.add_argument("--all", action="store_true", help="every change there is")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    given = parser.parse_args()
    chosen = {name: area for name, area in areas().items() if not given.area or name in given.area}
    wanted = {name: [one for one in modules()[name] if not given.module or one in given.module] for name in chosen}
    every = [place for name in chosen for place in places(name, wanted[name])]
    count = len(every) if given.all else min(given.count, len(every))
    print(f"{len(every)} places in {len(chosen)} areas; {count} changes to try, seed {given.seed}", flush=True)
    tests = {name: files(area["tests"]) for name, area in chosen.items()}
    of = {module: tests_of(module, tests[name]) for name, several in wanted.items() for module in several}
    needed = sorted({test for stages in of.values() for test in itertools.chain(*stages)})
    drawn = draw(every, count, None if given.all else given.seed)
    outcomes: list[tuple[Mutant, bool]] = []
    looks: dict[str, dict[str, Seen]] = {}
    lock = Lock()

    def work(one: Tests) -> None:
        while True:
            with lock:
                mutant = next(drawn, None)
            if mutant is None:
                return
            test = one.noticed_by(mutant, looks, of[mutant.module])
            print(f"noticed: {mutant.module}: {test}" if test else f"not noticed: {mutant}", flush=True)
            outcomes.append((mutant, test is None))

    with tempfile.TemporaryDirectory() as place, ExitStack() as until:
        Path(place).chmod(0o755)  # some tests become another user
        several = []
        for index in range(given.jobs):
            folder = Path(place, str(index))
            folder.mkdir()
            several.append(Tests(copy(folder), needed, until))
        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(work, several))
    return report(outcomes)


def report(outcomes: Sequence[tuple[Mutant, bool]]) -> int:
    """The table of areas; the exit code."""
    tried = Counter(mutant.area for mutant, _ in outcomes)
    lived = Counter(mutant.area for mutant, lives in outcomes if lives)
    print("\nroom          tried  noticed")
    for area, number in sorted(tried.items()):
        print(f"{area:12} {number:6} {number - lived[area]:6}  {1 - lived[area] / number:.0%}")
    noticed = 1 - lived.total() / max(tried.total(), 1)
    print(f"{'all':12} {tried.total():6} {tried.total() - lived.total():6}  {noticed:.1%}")
    return 0 if noticed >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
