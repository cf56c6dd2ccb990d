"""No field of the operator's configuration changes what a running job's objects look like, but for those that are named."""

from dataclasses import fields, replace
from typing import Any

import pytest
from rljob.api import ManifestError
from rljob.api.controller_memory import MAX_SETTINGS, ControllerMemory, RenderingMemory
from rljob.api.status import RLJobStatus
from rljob_operator.kube.process import configuration
from rljob_operator.kube.process.configuration import checked
from rljob_operator.kube.render import rendering
from rljob_operator.kube.render.children import children
from rljob_operator.kube.render.rendering import KEPT, as_text, with_kept
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.volumes import checkpoints_are

from tests.unit.operator.kube.changed_configuration import (
    AT_ONCE,
    CHANGES,
    TOGETHER,
    changed,
    every_field,
    started_under,
)
from tests.unit.operator.kube.rendered import CENTRAL, MEMBERS, SECRETS, owned, pod_of

UNREADABLE = ["", "{", "3", "[]", '{"spot": 3}', '{"requests": {"nobody": {}}}', '{"run_as_user": 0}', "null"]
JOB = owned(*CENTRAL, "spec.actors.spot=true", "spec.learner.accelerator.count=1")
STARTED = started_under()


def status(*, runs: bool = True, **memory: Any) -> RLJobStatus:
    """The status of a job that was started under those settings, and runs or is suspended."""
    fixed = rendering.offered(RLJobStatus(), STARTED).model_copy(update=memory)
    return RLJobStatus(controller=ControllerMemory(active_since=1.0 if runs else None, rendering=fixed))


def objects(settings: Settings) -> dict[str, Any]:
    """Every object of the job by its name."""
    found = [*children(JOB, SECRETS, settings), *(pod_of(JOB, member, settings) for member in MEMBERS.values())]
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in found}


def test_the_table_has_every_field() -> None:
    assert set(CHANGES) == every_field()
    assert set(configuration.AT_ONCE) == AT_ONCE


@pytest.mark.parametrize("field", CHANGES)
def test_a_changed_field_leaves_what_runs_as_it_is(field: str) -> None:
    then, now = objects(STARTED), changed(field)
    after = objects(rendering.settings_for(status(), now))
    differ = {name for name in {*then, *after} if then.get(name) != after.get(name)}
    assert differ == ({"NetworkPolicy/pong-apex"} if field == "prometheusNamespaces" else set())
    if field == "kueue.enabled":
        assert (now.kueue, rendering.settings_for(status(), now).kueue) == (True, False)
    elif field not in AT_ONCE:
        assert objects(now) != then, "the field matters to a job that starts now, or this test could not fail"


def test_what_is_at_once_is_all_that_is_not_kept() -> None:
    kept = {*KEPT, "image", "gpu_image"}
    assert {*KEPT, "image", "gpu_image"} | rendering.AT_ONCE == {each.name for each in fields(Settings)}
    now = changed(*TOGETHER)
    found = rendering.settings_for(status(), now)

    def same(names: set[str] | frozenset[str], one: Settings, other: Settings) -> set[str]:
        return {name for name in names if getattr(one, name) == getattr(other, name)}

    assert same(kept, now, STARTED) == set(), "each is changed by some field"
    assert (same(kept, found, STARTED), same(rendering.AT_ONCE, found, now)) == (kept, rendering.AT_ONCE)


@pytest.mark.parametrize(
    "settings", [Settings(image="rl:1"), STARTED, changed(*TOGETHER)], ids=["built in", "before", "changed"]
)
def test_settings_are_read_back_as_they_were(settings: Settings) -> None:
    found = with_kept(changed("userFromNamespace") if settings.run_as_user is not None else STARTED, as_text(settings))
    assert {name: getattr(found, name) for name in KEPT} == {name: getattr(settings, name) for name in KEPT}


@pytest.mark.parametrize("text", UNREADABLE)
def test_a_text_that_nobody_can_read_counts_for_nothing(text: str) -> None:
    assert with_kept(STARTED, text) == STARTED


def test_an_operator_that_knew_fewer_or_more_settings_has_left_the_rest_to_this_one() -> None:
    found = with_kept(STARTED, '{"cluster_domain":"a.b","of_a_later_release":1}')
    assert (found.cluster_domain, found.requests) == ("a.b", STARTED.requests)


def test_a_suspended_job_takes_over_what_is_new() -> None:
    now = changed("image", "clusterDomain", "checkpointClaim.size")
    assert rendering.settings_for(status(runs=False), now) == now
    assert rendering.offered(status(runs=False), now) == rendering.offered(RLJobStatus(), now)


def test_a_claim_that_a_job_has_got_stays_its_own() -> None:
    """A job that was suspended would else begin anew, with its checkpoints beside it."""
    now = replace(STARTED, checkpoint_size="", checkpoint_class="")
    assert checkpoints_are(JOB.job, now) == ""
    for known in (status(), status(runs=False)):
        found = rendering.settings_for(known, now)
        assert (found.checkpoint_size, found.checkpoint_class) == ("1Gi", "slow")
    again = RLJobStatus(
        controller=ControllerMemory(active_since=2.0, rendering=rendering.offered(status(runs=False), now))
    )
    assert rendering.settings_for(again, now).checkpoint_size == "1Gi", "and at the resumption after that one"


def test_what_is_remembered_is_small_and_bounded() -> None:
    assert len(as_text(Settings(image="rl:1"))) < 1200
    many = [{"key": f"example.com/{number:0240}", "value": "x" * 63} for number in range(32)]
    assert checked({"spot": {"labels": many[:8]}}, "file")
    with pytest.raises(ManifestError, match="characters would have to be remembered"):
        checked({"spot": {"labels": many, "taints": many}}, "file")
    assert RenderingMemory(settings=as_text(changed(*TOGETHER))).settings
    assert MAX_SETTINGS < 20_000
