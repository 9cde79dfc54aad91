"""A document that is not walked through for control characters and large numbers, where its text can hold none."""

from __future__ import annotations

import json
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from shakedown.common.text import load_sound, sound

TEXTS = st.text(max_size=8) | st.sampled_from(["\x1b[2J", "a\nb", "c2:5e:69", '":5e', "[1e9", "9" * 25, "é", "\u202e"])
NUMBERS = st.integers(-(1 << 70), 1 << 70) | st.floats() | st.sampled_from([1 << 64, (1 << 64) + 1, 10**18, 1e300])
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def outcome(work):
    try:
        return json.dumps(work())
    except ValueError:
        return "refused"


@given(DOCUMENTS, st.booleans(), st.booleans())
@settings(deadline=None)
def test_it_is_what_the_walk_makes_of_it(document, ascii_only, compact):
    text = json.dumps(document, ensure_ascii=ascii_only, separators=(",", ":") if compact else None)
    assert outcome(lambda: load_sound(text, 1 << 20)) == outcome(lambda: sound(json.loads(text)))


def test_what_is_nested_too_deeply_is_refused_by_both():
    for depth in (60, 70):
        text = "[" * depth + "]" * depth
        assert outcome(lambda text=text: load_sound(text, 1 << 20)) == outcome(
            lambda text=text: sound(json.loads(text))
        )
    assert math.inf not in load_sound("[1.5]", 10)
