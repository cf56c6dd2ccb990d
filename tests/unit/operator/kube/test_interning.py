"""What jobs have alike is kept once, told apart by what their users wrote, and let go with the last of them."""

from __future__ import annotations

import gc
from typing import Any

from rljob.api import RLJob, parse_job
from rljob.api.status import RLJobStatus
from rljob_operator.kube.job.interning import Interner

from tests.unit.api.bad_manifests import BASE
from tests.unit.api.written import document


def job(name: str, **spec: Any) -> RLJob:
    found = document(BASE)
    return parse_job({**found, "metadata": {"name": name}, "spec": {**found["spec"], **spec}})


def test_jobs_share_the_sections_that_are_the_same() -> None:
    interner, given = Interner(), [job("a"), job("b"), job("c", actors={"replicas": 7})]
    first, second, third = map(interner.job, given)
    assert ([first, second, third], second.metadata.name) == (given, "b"), "nothing of a job is changed by that"
    assert first.spec.learner is second.spec.learner is third.spec.learner
    assert first.spec.actors is second.spec.actors is not third.spec.actors
    assert third.spec.actors.replicas == 7


def test_who_wrote_a_value_stays_known() -> None:
    default = job("a").spec.monitoring.metrics_port
    interner = Interner()
    one, other = interner.job(job("a")), interner.job(job("b", monitoring={"metricsPort": default}))
    monitoring = one.spec.monitoring, other.spec.monitoring
    assert monitoring[0] == monitoring[1]
    assert ["metrics_port" in each.model_fields_set for each in monitoring] == [False, True]


def test_statuses_share_their_effective_specs() -> None:
    interner = Interner()
    specs = [{"actors": {"replicas": 2}, "learner": {"cpu": n}, "image": "rl:1"} for n in (1, 1, 2)]
    first, second, third = (interner.status(RLJobStatus(effective_spec=spec)) for spec in specs)
    assert [each.effective_spec for each in (first, second, third)] == specs
    assert first.effective_spec["learner"] is second.effective_spec["learner"]
    assert first.effective_spec["learner"] is not third.effective_spec["learner"]
    assert first.document() == RLJobStatus(effective_spec=specs[0]).document()


def test_what_no_job_has_any_more_is_let_go() -> None:
    interner = Interner()
    kept = interner.job(job("a"))
    size = len(interner)
    gone = interner.job(job("b", actors={"replicas": 9}))
    assert len(interner) == size + 1
    del gone
    gc.collect()
    assert len(interner) == size
    assert kept.spec.actors is interner.job(job("c")).spec.actors
