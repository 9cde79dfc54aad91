"""Whatever stands in a CVS file, an import ends with a layer or with errors that name their place in the file."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shakedown.desired.cvs.document import CvsError
from shakedown.desired.cvs.importing import import_file
from shakedown.desired.cvs.job import Choice
from tests.cvs_files import DISTRIBUTED, ONE, SWEEP

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["<changeme>", "<changeme>-x", "1e999", "", "True", "-1", "10**9", "a,b", "/dev/x", "nan"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path of a document."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [each for key, item in below for each in places(item, (*path, key))]


THRESHOLDS = json.loads(SWEEP.with_name("sweep_distributed_threshold.json").read_text("utf-8"))
DOCUMENTS = [
    (json.loads(DISTRIBUTED.read_text("utf-8")), ONE),
    (json.loads(SWEEP.read_text("utf-8")), Choice(run="mbs2-fp8")),
]


def put(document: Any, path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        document = document[key]
    document[path[-1]] = value


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_value_at_any_place(data: st.DataObject) -> None:
    document, choice = data.draw(st.sampled_from(DOCUMENTS))
    document, cells = json.loads(json.dumps(document)), json.loads(json.dumps(THRESHOLDS))
    for part in (document, cells):
        put(part, data.draw(st.sampled_from(places(part))), data.draw(values))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / SWEEP.name
        file.write_text(json.dumps(document), "utf-8")
        file.with_name("sweep_distributed_threshold.json").write_text(json.dumps(cells), "utf-8")
        try:
            found = import_file(file, choice)
        except CvsError as error:
            assert error.problems
            assert all(problem.path and problem.expected for problem in error.problems)
        else:
            opened = json.dumps(found.values, allow_nan=False).count("<changeme>") > 0
            assert opened == bool(found.open)
