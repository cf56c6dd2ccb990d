"""The names of a member's pods follow from what came before, so that asking twice makes one."""

from __future__ import annotations

import re

from rljob_operator.kube.job.apply import _suffix


def test_the_same_arguments_make_the_same_name_and_a_predecessor_another() -> None:
    assert _suffix("job", "learner", "") == _suffix("job", "learner", "")
    others = {_suffix("job", "learner", follows) for follows in ("", *map(str, range(1000)))}
    assert len(others) == 1001
    assert all(re.fullmatch("[b-df-hj-np-tv-z2-9]{5}", each) for each in others)


def test_jobs_and_members_have_names_of_their_own() -> None:
    assert len({_suffix(*parts) for parts in (("a", "b", "c"), ("a", "bc", ""), ("ab", "c", ""), ("", "ab", "c"))}) == 4
