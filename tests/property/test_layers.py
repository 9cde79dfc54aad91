"""Layers merge key by key, and each leaf knows the last layer that set it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shakedown.desired.layers import Layer, leaves, merge

keys = st.sampled_from(["a", "b", "c"])
values = st.recursive(
    st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
documents = st.dictionaries(keys, values, max_size=3)
stacks = st.lists(documents, min_size=1, max_size=4).map(
    lambda stack: [Layer(f"layer {number}", document) for number, document in enumerate(stack)]
)


@given(stacks)
def test_the_last_layer_wins_whole_at_its_leaves(stack):
    merged = merge(stack)
    last = stack[-1]
    have = dict(leaves(merged.values))
    for path, value in leaves(last.values):
        if value != {}:
            assert have[path] == value
            assert merged.origin_of(path) == last.name


@given(stacks)
def test_every_leaf_has_a_layer_that_holds_it(stack):
    merged = merge(stack)
    by_name = {layer.name: dict(leaves(layer.values)) for layer in stack}
    for path, value in leaves(merged.values):
        assert by_name[merged.origin_of(path)][path] == value


@given(stacks)
def test_merging_changes_no_layer_and_a_merge_of_one_is_that_one(stack):
    before = repr(stack)
    merge(stack)
    assert repr(stack) == before
    assert merge(stack[:1]).values == stack[0].values


@given(stacks)
def test_merging_the_result_again_changes_nothing(stack):
    once = merge(stack)
    assert merge([Layer("merged", once.values)]).values == once.values
