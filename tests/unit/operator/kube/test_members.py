"""From pods to members: where each is in its life, and why it ended."""

from typing import Any

import pytest
from rljob.api.conditions import Reason
from rljob_operator.core.member import Phase
from rljob_operator.core.observed import Observation
from rljob_operator.kube.job.members import (
    NODE_LOST_SECONDS,
    UNSCHEDULED_SECONDS,
    UNSEEN,
    Pod,
    current,
    former,
    members,
)
from rljob_operator.kube.job.observe import HELD_UP_SECONDS, held_up, with_rivals
from rljob_operator.kube.watch.pods import trim

from .member_pods import CREATED, condition, container, disruption, ended, member, named, pod, running, waiting

UNSCHEDULABLE = condition("PodScheduled", "False", reason="Unschedulable", message="0/3 nodes are available")
NODE_LOW = "The node was low on resource: %s. Threshold quantity: 1Gi, available: 900Mi. "
NODE_DISK = (
    NODE_LOW % "ephemeral-storage"
    + "Container worker was using 9Gi, request is 0, has larger consumption of ephemeral-storage. "
)


@pytest.mark.parametrize(
    ("found", "phase", "since", "ready"),
    [
        (pod(node="", conditions=[UNSCHEDULABLE]), Phase.STARTING, 0, None),
        (pod(containerStatuses=[waiting("ContainerCreating")]), Phase.STARTING, 0, None),
        (pod(phase="Running", containerStatuses=[running(started=False)]), Phase.STARTING, 0, None),
        (pod(phase="Running", containerStatuses=[running(ready=False)]), Phase.READY, 2, 2),
        (pod(phase="Running", containerStatuses=[running()]), Phase.READY, 2, 2),
        (pod(deleted=(80, 30), phase="Running", containerStatuses=[running()]), Phase.DRAINING, 80, 2),
        (pod(deleted=(50, 30), phase="Running", containerStatuses=[running()]), Phase.EXITED, 80, None),
        (pod(deleted=(50, 30), node=""), Phase.EXITED, 80, None),
        (pod(phase="Succeeded", containerStatuses=[ended(0, "Completed")]), Phase.EXITED, 60, None),
        (pod(phase="Failed", conditions=[condition("Ready", "False", 55)]), Phase.EXITED, 55, None),
        (pod(phase="Failed"), Phase.EXITED, 0, None),
        (pod(phase="Failed", containerStatuses=[ended(137, when=None)]), Phase.EXITED, 0, None),
        (
            pod(phase="Running", containerStatuses=[running(), container({"terminated": {"exitCode": 1}}, "redis")]),
            Phase.READY,
            2,
            2,
        ),
    ],
)
def test_where_a_member_is_in_its_life(found: dict[str, Any], phase: Phase, since: float, ready: float | None) -> None:
    for each in (found, trim(found)):
        seen = member(each, CREATED + 81 + NODE_LOST_SECONDS)
        when = None if ready is None else CREATED + ready
        assert (seen.phase, seen.since_seconds, seen.ready_seconds) == (phase, CREATED + since, when)


LONG = "20:02:42 INFO waiting for a welcome\n" * 20
"""A status has room for little of a log, and its beginning says nothing."""


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            f"{LONG}rljob: no answer from the inference server for 30 s\n",
            "no answer from the inference server for 30 s",
        ),
        (f"{LONG}rljob: out of space\n20:03:12 INFO a player ends\n", "out of space"),
        (f"{LONG}core dumped\n", "core dumped"),
        # The line that names the error wins over what other threads write after it.
        (
            "Traceback (most recent call last):\nValueError: no such game\n20:03:12 INFO a player ends",
            "ValueError: no such game",
        ),
        (
            "gymnasium.error.NameNotFound: x\nale.errors.RomError: no ROM\nINFO bye\nINFO bye",
            "ale.errors.RomError: no ROM",
        ),
        ("INFO 3 errors so far\nINFO bye", "INFO bye"),
        ("20:03:12 INFO it acts", "its log gives no reason; last line: 20:03:12 INFO it acts"),
        (
            f"{LONG}Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n"
            '  File "env.py", line 47 in step\n  File "loop.py", line 9 in run\n\nExtension modules: a, b (total: 2)',
            'Segmentation fault at "env.py", line 47 in step',
        ),
    ],
)
def test_the_end_of_a_log_says_why_a_worker_ended(log: str, said: str) -> None:
    assert member(trim(pod(phase="Failed", containerStatuses=[ended(1, message=log)])), CREATED + 81).last_words == said


def test_a_node_is_lost_only_when_the_grace_period_is_long_over() -> None:
    going = pod(deleted=(50, 30), phase="Running", containerStatuses=[running()])
    assert member(going, CREATED + 80 + NODE_LOST_SECONDS - 1).phase is Phase.DRAINING
    lost = member(going, CREATED + 80 + NODE_LOST_SECONDS + 1)
    assert (lost.phase, lost.disrupted, lost.exit_code) == (Phase.EXITED, "NodeLost", None)


def gated(*gates: str) -> dict[str, Any]:
    found = pod(node="", conditions=[condition("PodScheduled", "False", reason="SchedulingGated")])
    return {**found, "spec": {**found["spec"], "schedulingGates": [{"name": each} for each in gates]}}


@pytest.mark.parametrize(
    ("found", "reason", "message"),
    [
        (pod(node="", conditions=[UNSCHEDULABLE]), Reason.UNSCHEDULABLE, "0/3 nodes are available"),
        (pod(containerStatuses=[waiting("ImagePullBackOff", "no such image")]), Reason.IMAGE_PULL_FAILED, "no such image"),
        (pod(initContainerStatuses=[waiting("ErrImagePull")]), Reason.IMAGE_PULL_FAILED, "ErrImagePull"),
        (pod(containerStatuses=[waiting("ContainerCreating", "pulling")]), None, ""),
        (pod(initContainerStatuses=[{**named("redis", waiting("CrashLoopBackOff", "back-off 10s restarting")),
                                     "lastState": ended(1, message="no such directory")["state"]}]), None,
         "CrashLoopBackOff: container redis ended with exit code 1: no such directory"),
        (pod(containerStatuses=[waiting("CreateContainerConfigError", "no secret")]), None,
         "CreateContainerConfigError: no secret"),
        (gated("example.com/checked", "example.com/paid"), Reason.UNSCHEDULABLE,
         "no node is looked for until its scheduling gates are removed: example.com/checked, example.com/paid"),
    ],
)  # fmt: skip
def test_why_a_member_does_not_come_up(found: dict[str, Any], reason: Reason | None, message: str) -> None:
    seen = member(trim(found), CREATED + 5)
    assert (seen.waiting, seen.waiting_message) == (reason, message)


def test_a_pod_of_which_no_scheduler_says_anything_is_waited_for_in_words() -> None:
    """Its scheduler is not there, or waits until a volume is made."""
    assert member(trim(pod(node="")), CREATED + UNSCHEDULED_SECONDS - 1).waiting_message == ""
    late = member(trim(pod(node="")), CREATED + UNSCHEDULED_SECONDS)
    assert (late.waiting, late.waiting_message, late.placed) == (None, "no scheduler has said anything of it", False)
    assert member(trim(pod()), CREATED + 99).waiting_message == ""


@pytest.mark.parametrize(
    ("beside", "words"),
    [
        ({}, "containers with unready status: [proxy]"),
        ({"initContainerStatuses": [{**named("proxy", waiting("CrashLoopBackOff", "back-off 10s")),
                                     "lastState": ended(4, message="no config")["state"]}]},
         "CrashLoopBackOff: container proxy ended with exit code 4: no config"),
    ],
)  # fmt: skip
def test_a_pod_that_is_up_and_not_ready(beside: dict[str, Any], words: str) -> None:
    said = condition("Ready", "False", 40, message="containers with unready status: [proxy]")
    seen = member(trim(pod(containerStatuses=[running()], conditions=[said], **beside)), CREATED + 99)
    assert (seen.phase, seen.unready_seconds, seen.waiting_message) == (Phase.READY, CREATED + 40, words)
    ready = member(pod(containerStatuses=[running()], conditions=[condition("Ready", "True", 40)]), CREATED + 99)
    assert (ready.unready_seconds, ready.waiting_message) == (None, "")


def evicted(message: str, *conditions: dict[str, Any]) -> dict[str, Any]:
    status = {"phase": "Failed", "reason": "Evicted", "message": message, "conditions": list(conditions)}
    return pod(**status, containerStatuses=[ended(137)])


@pytest.mark.parametrize(
    ("found", "code", "disrupted", "words"),
    [
        (pod(phase="Succeeded", containerStatuses=[ended(0, "Completed")]), 0, "", ""),
        (pod(phase="Failed", containerStatuses=[ended(78, message="gpu is no field")]), 78, "", "gpu is no field"),
        (pod(phase="Failed", containerStatuses=[ended(70, message="loss is nan")]), 70, "", "loss is nan"),
        (pod(phase="Failed", containerStatuses=[ended(137, "OOMKilled")]), 137, "", "raise requests and limits of memory"),
        (pod(phase="Failed", containerStatuses=[ended(137, "OOMKilled")], conditions=[disruption("EvictionByEvictionAPI")]),
         137, "", "OOMKilled: container worker"),
        (pod(phase="Failed", containerStatuses=[ended(143)]), 143, "", ""),  # a signal within, or a liveness probe
        # what the pod itself did, in each of the kubelet's wordings
        (evicted('Usage of EmptyDir volume "shm" exceeds the limit "64Mi". '), 137, "", "EmptyDir"),
        (evicted("Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. "), 137, "", "1Gi"),
        (evicted('Container worker exceeded its local ephemeral storage limit "1Gi". ',
                 disruption("TerminationByKubelet")), 137, "", "exceeded"),
        # what became of its node, or what another client did to it
        (evicted(NODE_LOW % "memory", disruption("TerminationByKubelet")), 137, "TerminationByKubelet", "Evicted; The node"),
        (evicted(NODE_LOW % "memory"), 137, "Evicted", "memory"),
        (evicted(NODE_DISK, disruption("TerminationByKubelet")), 137, "TerminationByKubelet", "low on resource"),
        (pod(deleted=(40, 30), phase="Failed", containerStatuses=[ended(143)],
             conditions=[disruption("EvictionByEvictionAPI")]), 143, "EvictionByEvictionAPI", ""),
        (pod(deleted=(40, 30), phase="Failed", containerStatuses=[ended(143)],
             conditions=[disruption("PreemptionByScheduler", "preempting for pod x")]),
         143, "PreemptionByScheduler", "preempting for pod x"),
        (pod(deleted=(40, 30), phase="Failed", containerStatuses=[ended(143)]), 143, "Deleted", ""),
        (pod(deleted=(40, 30), node=""), None, "Deleted", ""),
        (pod(phase="Failed", reason="Terminated", message="imminent node shutdown", containerStatuses=[ended(137)]),
         137, "Terminated", "imminent node shutdown"),
        (pod(phase="Failed", reason="OutOfcpu", message="Node didn't have enough resource: cpu"),
         None, "OutOfcpu", "enough resource"),
        (pod(phase="Failed", reason="UnexpectedAdmissionError"), None, "UnexpectedAdmissionError", ""),
        (pod(phase="Failed", reason="SomeRefusalOfTomorrow", containerStatuses=[waiting("ContainerCreating")]),
         None, "SomeRefusalOfTomorrow", ""),
        (pod(phase="Failed", reason="UnexpectedAdmissionError", containerStatuses=[ended(137, "ContainerStatusUnknown")]),
         137, "UnexpectedAdmissionError", ""),  # it ran when its kubelet started anew
        (pod(phase="Failed", containerStatuses=[ended(255, "Unknown")]), 255, "Unknown", ""),
        (pod(phase="Failed"), None, UNSEEN, ""),
        # its own activeDeadlineSeconds: the phase decides, whatever the containers say
        (pod(phase="Failed", reason="DeadlineExceeded", message="Pod was active on the node longer",
             containerStatuses=[ended(0, "Completed")]), 0, "DeadlineExceeded", "longer"),
        # it was told to leave, in whichever second by whose clock, and whether or not its time was then made shorter
        (pod(deleted=(60, 30), phase="Failed", containerStatuses=[ended(1)]), 1, "Deleted", ""),
        (pod(deleted=(62, 30), containerStatuses=[ended(0, "Completed")]), 0, "Deleted", ""),
        (pod(deleted=(70, 0), phase="Failed", containerStatuses=[ended(143)]), 143, "Deleted", ""),
        (pod(deleted=(70, 0), phase="Failed"), None, "Deleted", ""),
        # the containers beside the worker
        (pod(phase="Failed", initContainerStatuses=[named("fetch", ended(3, message="no such bucket"))],
             containerStatuses=[waiting("PodInitializing")]), 3, "", "container fetch ended with exit code 3: no such bucket"),
        (pod(phase="Failed", containerStatuses=[ended(0, "Completed"), named("beside", ended(4, message="disk full"))]),
         4, "", "container beside ended with exit code 4: disk full"),
        (pod(phase="Failed", initContainerStatuses=[named("fetch", ended(137, "OOMKilled"))],
             containerStatuses=[waiting("PodInitializing")]), 137, "", "137: OOMKilled: container fetch needed more memory"),
        (pod(phase="Failed", initContainerStatuses=[named("redis", ended(137))], containerStatuses=[ended(0, "Completed")]),
         0, "", ""),
        (pod(phase="Failed", containerStatuses=[ended(9, message="mine"), named("beside", ended(4))]), 9, "", "mine"),
        (pod(deleted=(70, 0), phase="Failed", containerStatuses=[ended(74)]), 74, "Deleted", ""),
    ],
)  # fmt: skip
def test_why_a_member_ended(found: dict[str, Any], code: int | None, disrupted: str, words: str) -> None:
    seen = member(trim(found), CREATED + 1000)
    assert (seen.phase, seen.exit_code, seen.disrupted, seen.failed) == (Phase.EXITED, code, disrupted, True)
    assert words in seen.last_words


@pytest.mark.parametrize(
    "left",
    [
        {"containerStatuses": [ended(143, message='{"role": "learner", "checkpoint": {"state": "Valid"}}')]},
        {"containerStatuses": [ended(143, message="the end of its log")], "deleted": (40, 30)},
    ],
)
def test_what_a_worker_left_in_good_order_is_no_reason_for_its_end(left: dict[str, Any]) -> None:
    assert member(trim(pod(phase="Failed", **left)), CREATED + 99).last_words == ""


def test_who_told_a_worker_to_end_is_waited_for_while_a_sidecar_still_saves() -> None:
    going = {"initContainerStatuses": [named("redis", running())], "containerStatuses": [ended(143)]}
    shard = pod("replay-0", phase="Running", **going)
    shard["spec"]["terminationGracePeriodSeconds"] = 30
    killed = {**shard, "status": {"phase": "Running", **going, "containerStatuses": [ended(137)]}}
    # No longer than its whole time; where it was killed, its sidecar would have been, too.
    for found, last, over in ((shard, 80, 91), (killed, 64, 66)):
        phases = [member(trim(found), CREATED + seconds).phase for seconds in (last, over)]
        assert phases == [Phase.DRAINING, Phase.EXITED]
    shard["status"] |= {"phase": "Failed", "reason": "Terminated", "initContainerStatuses": [named("redis", ended(0))]}
    assert member(trim(shard), CREATED + 80).disrupted == "Terminated"
    for by_itself in (ended(0), ended(1), ended(137, "OOMKilled")):
        failed = {**shard, "status": {"phase": "Running", **going, "containerStatuses": [by_itself]}}
        assert member(trim(failed), CREATED + 80).failed


def test_the_note_on_a_pod_tells_who_wanted_its_end() -> None:
    asked = member(pod(deleted=(40, 30), annotations=("asked",), containerStatuses=[ended(0)]), CREATED + 100)
    assert (asked.asked, asked.disrupted, asked.failed) == (True, "", False)


@pytest.mark.parametrize(
    ("said", "worker", "leaving"),
    [
        (disruption("DeletionByTaintManager"), running(), True),
        (disruption("DeletionByTaintManager"), ended(1), False),
        (condition("DisruptionTarget", "False"), running(), False),
    ],
)
def test_a_node_that_goes_is_told_of_those_that_still_run(
    said: dict[str, Any], worker: dict[str, Any], leaving: bool
) -> None:
    assert member(pod(conditions=[said], containerStatuses=[worker]), CREATED + 99).leaving_node == leaving


@pytest.mark.parametrize(
    ("conditions", "known", "ready"),
    [([], {"uid-1"}, CREATED + 2), ([condition("Ready", "False", 30)], set(), CREATED + 2), ([], set(), None)],
)
def test_whether_an_ended_member_was_ever_up(conditions: list[Any], known: set[str], ready: float | None) -> None:
    assert member(pod(containerStatuses=[ended(1)], conditions=conditions), CREATED + 99, known).ready_seconds == ready


def test_of_two_pods_the_newest_that_stays_is_the_member() -> None:
    old, new = pod(uid="a", created=1), pod(uid="b", created=2)
    going = pod(uid="c", created=3, deleted=(4, 30))
    for pods in ([old, new, going], [going, new, old]):
        assert current(pods)["learner"]["metadata"]["uid"] == "b"
        assert sorted(each["metadata"]["uid"] for each in former(pods)) == ["a", "c"]
    assert current([going])["learner"]["metadata"]["uid"] == "c"


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_pods_of_one_second_the_one_that_has_gone_was_the_first(order: int) -> None:
    for gone, there in (("a", "b"), ("b", "a")):
        pods = [{**pod(uid=gone), "gone": True}, pod(uid=there)][::order]
        assert current(pods)["learner"]["metadata"]["uid"] == there


def test_one_that_has_gone_is_not_forgotten_for_an_older_one_that_goes() -> None:
    stuck, newer = pod(uid="a", created=1, deleted=(2, 30)), {**pod(uid="b", created=3), "gone": True}
    assert current([stuck, newer])["learner"]["metadata"]["uid"] == "b"


def test_members_are_in_order_and_strangers_are_left_out() -> None:
    found = [pod(name, uid=name) for name in ("actor-10", "evaluator", "actor-9", "learner", "replay-0")]
    stranger, judge = pod(uid="x"), pod(uid="y")
    stranger["spec"]["hostname"], judge["spec"]["hostname"] = "nobody", ""
    found[0]["metadata"]["labels"] = None  # a policy engine has taken them off
    everyone = [*found, stranger, judge]
    names = [each.name for each in members(everyone, CREATED)]
    assert (names, former(everyone)) == (["replay-0", "learner", "actor-9", "actor-10", "evaluator"], [])


def test_a_pod_is_held_up_once_it_has_had_a_node_for_long_however_long_it_waited_for_one() -> None:
    late = [pod(conditions=[condition("PodScheduled", when=100.0)], containerStatuses=[waiting("ContainerCreating")])]
    for seconds, expected in ((100.0 + HELD_UP_SECONDS - 1.0, []), (100.0 + HELD_UP_SECONDS, ["learner"])):
        assert held_up(members(late, CREATED + seconds), late, CREATED + seconds) == expected


# Two jobs, each of which holds room that the rest of the other needs.

NO_ROOM = "0/3 nodes are available: 3 Insufficient cpu"
HAS = {"phase": "Running", "containerStatuses": [running()]}
STUCK = {"node": "", "conditions": [condition("PodScheduled", "False", reason="Unschedulable", message=NO_ROOM)]}
HALF = {"replay-0": HAS, "learner": STUCK}
UNBOUND = condition("PodScheduled", "False", reason="Unschedulable", message="unbound immediate PersistentVolumeClaims")


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        (HALF, HALF, True),
        (HALF, {"replay-0": HAS, "learner": HAS}, False),
        (HALF, {"replay-0": STUCK, "learner": STUCK}, False),
        (HALF, {"replay-0": HAS, "learner": {"node": "", "conditions": [UNBOUND]}}, False),
        ({"replay-0": HAS, "learner": HAS, "actor-0": STUCK}, HALF, False),
        ({"learner": STUCK}, HALF, False),
    ],
)
def test_jobs_that_hold_a_part_and_wait_name_each_other(
    ours: dict[str, dict[str, Any]], theirs: dict[str, dict[str, Any]], told: bool
) -> None:
    def pods_of(job: dict[str, dict[str, Any]]) -> list[Pod]:
        return [pod(name, uid=name, **state) for name, state in job.items()]

    observed = Observation(members(pods_of(ours), CREATED + 60))
    found = with_rivals(observed, [("other", pods_of(theirs))], CREATED + 60)
    waits = [member.waiting_message for member in found.members if member.waiting is Reason.UNSCHEDULABLE]
    assert waits
    assert all(("other of this namespace waits" in said) is told for said in waits)
    assert all(said.endswith(NO_ROOM) for said in waits), "the scheduler's words come after it"
