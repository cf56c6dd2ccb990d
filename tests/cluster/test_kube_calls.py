"""Every request that a job costs the API server until it runs, by verb and resource: one that is added is seen here.

Watches come on top, and a scheduler's and kubelets' own requests.
"""

from collections import Counter

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import RLJOBS
from rljob_operator.kube.job.status_writer import SEEN_SECONDS

from tests.cluster.reconciling import TWO_ACTORS, BreakingClient, Clock, Kubelet, Run, status_of, written

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


async def brought_up(run: Run, viewer: Client, kubelet: Kubelet, clock: Clock, name: str, seconds: float) -> Calls:
    """All requests until nothing is to be done any more; a turn each ``seconds``, and all pods run by the next."""
    assert isinstance(run.client, BreakingClient)
    run.client.reset()
    for _ in range(TURNS):
        await run.turn(viewer, name)
        await run.events.flush()
        await kubelet.start(name)
        clock.seconds += seconds
    status = await status_of(viewer, run.namespace, name)
    assert (status["replay"]["ready"], status["actors"]["ready"]) == (1, 2), status
    return Counter(run.client.calls)


async def test_what_a_job_costs_and_what_another_like_it(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, clock: Clock, namespace: str
) -> None:
    run = Run(client, namespace, now=clock.now, monotonic=clock.monotonic, seen_seconds=SEEN_SECONDS)
    for name in ("first", "second"):
        await viewer.create(RLJOBS, written(namespace, name, **TWO_ACTORS))
        assert await brought_up(run, viewer, kubelet, clock, name, 1.0) == OF_EACH_JOB + TRIED


async def test_what_a_new_job_does_not_want_is_not_looked_for(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, clock: Clock, namespace: str
) -> None:
    run = Run(client, namespace, now=clock.now, monotonic=clock.monotonic, seen_seconds=SEEN_SECONDS)
    await viewer.create(RLJOBS, written(namespace, "open", network={"policy": "Disabled"}, **TWO_ACTORS))
    expected = OF_EACH_JOB + TRIED
    del expected["create", "networkpolicies"]
    assert await brought_up(run, viewer, kubelet, clock, "open", 1.0) == expected


@pytest.mark.parametrize("minutes", [1.5, 4.0])
async def test_roles_that_come_up_minutes_after_each_other_cost_no_more(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, clock: Clock, namespace: str, minutes: float
) -> None:
    run = Run(client, namespace, now=clock.now, monotonic=clock.monotonic, seen_seconds=SEEN_SECONDS)
    await viewer.create(RLJOBS, written(namespace, "pong", **TWO_ACTORS))
    more = (await brought_up(run, viewer, kubelet, clock, "pong", 60.0 * minutes)) - OF_EACH_JOB
    assert set(more) <= {("patch", "rljobs/status"), ("create", "events"), ("patch", "events")}, more
    assert not any(resource == "secrets" for _, resource in more)
