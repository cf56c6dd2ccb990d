"""Members and operators that end without being asked: who counts, who is replaced, and where the training goes on."""

import re

from tests.e2e.cluster import LONG_SECONDS, Namespace, checkpoint_claim, endless, pause
from tests.e2e.operator_process import OperatorProcess
from tests.support.waiting import eventually

STORAGE = {"intervalSeconds": 2, "storage": {"persistentVolumeClaim": {"claimName": "checkpoints"}}}


def test_a_killed_learner_counts_once_and_resumes_from_its_checkpoint(namespace: Namespace) -> None:
    namespace.apply(checkpoint_claim(), endless("killed", checkpoint=STORAGE))
    namespace.wait_updates("killed")
    namespace.wait_for("killed", "CheckpointValid", "True", "Verified")
    step = namespace.job_status("killed")["checkpoint"]["step"]
    before = namespace.uids("killed")
    epoch = namespace.learner_figures("killed")["epoch"]

    namespace.kill_worker("killed", "learner")
    eventually(
        lambda: namespace.uids("killed").get("learner", before["learner"]) != before["learner"],
        "no pod follows the learner's",
        LONG_SECONDS,
        pause,
    )
    resumed = eventually(
        lambda: re.search(r"resumed from \S+: update (\d+), epoch (\d+)", namespace.log("killed", "learner")),
        lambda: namespace.log("killed", "learner"),
        LONG_SECONDS,
        pause,
    )
    assert int(resumed[1]) >= step
    assert int(resumed[2]) == epoch + 1
    namespace.wait_updates("killed", more_than=int(resumed[1]))
    namespace.wait_for("killed", "Ready", "True")

    status = namespace.job_status("killed")
    assert status["restarts"] == {"counted": 1, "ignored": 0}
    assert [(each["role"], each["exitCode"]) for each in status["failures"]] == [("Learner", 137)]
    assert namespace.uids("killed")["actor-0"] == before["actor-0"]


def test_an_actor_that_is_deleted_by_force_is_replaced(namespace: Namespace) -> None:
    namespace.apply(endless("forced", actors={"replicas": 2, "resources": {"requests": {"cpu": "50m"}}}))
    namespace.wait_for("forced", "Ready", "True")
    before = namespace.pods("forced")

    victim = before["actor-1"]["metadata"]
    namespace.kubectl("delete", "pod", victim["name"], "--force", "--grace-period=0", "--wait=false")
    eventually(
        lambda: len(set(namespace.uids("forced").values()) - {victim["uid"]}) == len(before),
        "no pod follows the actor's",
        LONG_SECONDS,
        pause,
    )
    # What is merely seen of members is written within seconds: the end that was counted says that the status is a newer one.
    eventually(
        lambda: namespace.job_status("forced")["restarts"] == {"counted": 0, "ignored": 1},
        lambda: f"restarts are {namespace.job_status('forced')['restarts']}",
        LONG_SECONDS,
        pause,
    )
    namespace.wait_actors("forced", 2)

    after = namespace.uids("forced")
    for member in ("learner", "actor-0"):
        assert after[member] == before[member]["metadata"]["uid"]


def test_training_goes_on_under_the_next_operator(namespace: Namespace, operator: OperatorProcess) -> None:
    namespace.train(endless("kept"))
    before = namespace.uids("kept")
    assert set(before) == {"learner", "actor-0"}
    children = namespace.names("services,secrets,configmaps,networkpolicies")

    operator.kill()
    namespace.wait_updates("kept", more_than=namespace.learner_figures("kept")["updates"])  # no operator looks after it
    operator.start()
    namespace.kubectl("scale", "rljob", "kept", "--replicas=2")  # the next one works
    namespace.wait_actors("kept", 2)

    after = namespace.uids("kept")
    assert set(after) == {*before, "actor-1"}
    assert {member: after[member] for member in before} == before
    assert len(namespace.all_pods("kept")) == 3
    assert namespace.names("services,secrets,configmaps,networkpolicies") == children
    assert namespace.job_status("kept")["restarts"] == {"counted": 0, "ignored": 0}


def test_a_second_operator_takes_over_when_the_first_one_is_killed(
    namespace: Namespace, operator: OperatorProcess
) -> None:
    namespace.apply(endless("handed"))
    namespace.wait_for("handed", "Ready", "True")
    before = namespace.uids("handed")

    second = operator.start_candidate()
    operator.kill()
    operator.take_over(second)
    namespace.kubectl("delete", "pod", namespace.pods("handed")["actor-0"]["metadata"]["name"], "--wait=false")
    eventually(
        lambda: len(set(namespace.uids("handed").values()) - {before["actor-0"]}) == len(before),
        "the second operator replaces no actor",
        LONG_SECONDS,
        pause,
    )
    assert namespace.uids("handed")["learner"] == before["learner"]
    namespace.wait_for("handed", "Ready", "True")
    assert namespace.job_status("handed")["restarts"]["counted"] == 0


def test_a_job_that_is_deleted_while_no_operator_runs(namespace: Namespace, operator: OperatorProcess) -> None:
    namespace.apply(endless("orphaned"))
    namespace.wait_for("orphaned", "Ready", "True")
    operator.stop()

    namespace.kubectl("delete", "rljob", "orphaned", "--wait=false")
    namespace.wait_empty()
    operator.start()
