"""The change between two documents, as RFC 7386 has it, is what differs and no more."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rljob_operator.kube.apiserver.resources import merge_patch


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 2, "d": 3}}, {}),
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 2, "d": 4}}, {"b": {"d": 4}}),
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 2}}, {"a": None, "b": {"d": None}}),
        ({"a": [1, 2]}, {"a": [1]}, {"a": [1]}),
        ({"a": {"b": 1}}, {"a": "text"}, {"a": "text"}),
        ({}, {"a": {"b": 1}}, {"a": {"b": 1}}),
    ],
)
def test_what_differs_is_sent(before: dict[str, Any], after: dict[str, Any], change: dict[str, Any]) -> None:
    assert merge_patch(before, after) == change


def applied(target: Any, change: Any) -> Any:
    """RFC 7386, section 2, to the letter."""
    if not isinstance(change, dict):
        return change
    found = dict(target) if isinstance(target, dict) else {}
    for name, value in change.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = applied(found.get(name), value)
    return found


LEAVES = st.integers(0, 3) | st.text("ab", max_size=2) | st.lists(st.integers(0, 2), max_size=2)
DOCUMENTS = st.dictionaries(
    st.sampled_from("abcd"),
    st.recursive(LEAVES, lambda below: st.dictionaries(st.sampled_from("abcd"), below, max_size=3)),
    max_size=4,
)


@given(DOCUMENTS, DOCUMENTS)
def test_the_change_makes_one_of_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert applied(before, merge_patch(before, after)) == after
