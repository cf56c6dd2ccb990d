"""Every request that a job costs the API server until it runs, by verb and resource: one that is added is seen here.

Watches come on top, and a scheduler's and kubelets' own requests.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.job.status_writer import SEEN_SECONDS

from tests.cluster.reconciling import TWO_ACTORS, BreakingClient, Clock, OneJob, Run

Calls = Counter[tuple[str, str]]

TURNS = 20
OF_EACH_JOB: Calls = Counter(
    {
        ("create", "secrets"): 2,
        ("create", "configmaps"): 1,
        ("create", "services"): 1,
        ("create", "networkpolicies"): 1,
        ("create", "persistentvolumeclaims"): 1,
        ("create", "pods"): 4,
        ("create", "events"): 1,
        ("patch", "rljobs/status"): 2,
    }
)
"""A job has a learner, a shard and two actors that come up within seconds. One event
says what has come up. One write gives the learner its epoch before it starts, one says that all is up."""
TRIED: Calls = Counter({("try", "persistentvolumeclaims"): 1})
"""Whether claims get volumes, which is asked again for each job while they do not."""


@pytest.fixture
def job(viewer: Client, client: BreakingClient, clock: Clock, run: Run) -> Callable[[str], OneJob]:
    """Jobs of one operator, which waits with what it has seen as it does at work."""
    run = Run(client, run.namespace, now=clock.now, monotonic=clock.monotonic, seen_seconds=SEEN_SECONDS)
    return lambda name: OneJob(viewer, client, run, name, clock)


async def brought_up(job: OneJob, seconds: float = 1.0, **spec: Any) -> Calls:
    """All requests until nothing is to be done any more; a turn each ``seconds``, and all pods run by the next."""
    await job.create(**TWO_ACTORS, **spec)
    job.client.reset()
    for _ in range(TURNS):
        await job.turn()
        await job.run.events.flush()
        await job.start_pods()
        job.clock.seconds += seconds
    status = await job.status()
    assert (status["replay"]["ready"], status["actors"]["ready"]) == (1, 2), status
    return Counter(job.client.calls)


async def test_what_a_job_costs_and_what_another_like_it(job: Callable[[str], OneJob]) -> None:
    for name in ("first", "second"):
        assert await brought_up(job(name)) == OF_EACH_JOB + TRIED


async def test_what_a_new_job_does_not_want_is_not_looked_for(job: Callable[[str], OneJob]) -> None:
    expected = OF_EACH_JOB + TRIED
    del expected["create", "networkpolicies"]
    assert await brought_up(job("open"), network={"policy": "Disabled"}) == expected


@pytest.mark.parametrize("minutes", [1.5, 4.0])
async def test_roles_that_come_up_minutes_after_each_other_cost_no_more(
    job: Callable[[str], OneJob], minutes: float
) -> None:
    more = await brought_up(job("pong"), 60.0 * minutes) - OF_EACH_JOB - TRIED
    assert set(more) <= {("patch", "rljobs/status"), ("create", "events"), ("patch", "events")}, more
    assert not any(resource == "secrets" for _, resource in more)
