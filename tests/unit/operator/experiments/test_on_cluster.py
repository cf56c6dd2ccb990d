"""Experiments on a simulated cluster: the operator is killed at each of its writes, jobs are edited and deleted by hand."""

from __future__ import annotations

from typing import Any

import pytest
from rljob.api import parse_job
from rljob.api.experiment_check import parse_experiment
from rljob.api.status import RLJobStatus
from rljob_operator.experiments.journal import replayed
from rljob_operator.kube.apiserver.errors import ApiError, Forbidden, QuotaExceeded
from rljob_operator.kube.apiserver.resources import CONFIG_MAPS, PODS, RLEXPERIMENTS, RLJOBS, VOLUME_CLAIMS, Resource
from rljob_operator.kube.experiment import reconcile
from rljob_operator.kube.render import others as render
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.pod import pod as pod_of
from rljob_operator.kube.render.settings import Settings

from tests.support.experiment_cluster import NAMESPACE, World
from tests.support.experiment_world import population
from tests.unit.operator.experiments.test_experiments import HALVING, MEDIAN, document, spread

IN_A_BUCKET, TURNS = population(), population(parallelism=2)
for each in (IN_A_BUCKET, TURNS):
    each["spec"]["template"]["spec"]["checkpoint"] = {"storage": {"objectStore": {"url": "s3://b/p"}}}
CASES: dict[str, tuple[dict[str, Any], frozenset[int]]] = {
    "halving": (document(3, prune=HALVING, seeds=2), frozenset()),
    "median": (document(2, prune=MEDIAN), frozenset()),
    "failing": (document(3, maxFailedTrials=1), frozenset({1})),
    "too many fail": (document(3, maxFailedTrials=0), frozenset({0, 1})),
    "a population": (IN_A_BUCKET, frozenset()),
    "a population that takes turns": (TURNS, frozenset()),
}


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_killed_at_every_write_it_ends_as_it_would_have(case: str) -> None:
    """No job is doubled, no decision made twice or otherwise, no line lost, no game played twice for a line."""
    experiment, fails = CASES[case]
    calm = World(experiment, spread, fails=fails)
    ended = calm.live()
    assert ended["completionTime"]
    assert calm.moments > 15
    assert len(set(calm.judged)) == len(calm.judged)
    # Of a population, which has many more, every fifth in turn; `benchmarks.experiments operator` takes all.
    for at in range(1, calm.moments + 1, 5 if "population" in case else 1):
        world = World(experiment, spread, kill_at=at, fails=fails)
        assert (world.live(), world.text) == (ended, calm.text), at
        assert (world.frames, world.judged) == (calm.frames, calm.judged), at
        specs, undisturbed = ({name: job["spec"] for name, job in each.of(RLJOBS).items()} for each in (world, calm))
        assert specs == undisturbed
    assert replayed(calm.text.splitlines(keepends=True)).end is not None


def test_what_it_comes_to() -> None:
    world = World(document(5, prune=HALVING, seeds=2, parallelism=2), spread)
    status = world.live()
    assert world.condition("Complete")["reason"] == "Completed"
    assert (status["trials"], status["done"], status["running"], status["failed"]) == (5, 5, 0, 0)
    # 37 * trial % 101 is largest for trial 2.
    best, fresh = status["best"], status["fresh"]
    assert (best["trial"], best["seeds"], status["runs"]) == (2, 2, ["a-2", "a-2-s2"])
    assert (fresh["episodes"], float(fresh["mean"])) == (100, pytest.approx(float(best["mean"])))
    assert world.of(PODS) == {}, "judges that are done are gone"
    stopped = {name for name, each in world.of(RLJOBS).items() if each["spec"]["suspend"]}
    complete = {name for name, state in world.states.items() if "Complete" in state}
    assert stopped | complete == set(world.of(RLJOBS)), "nothing plays on"
    reasons = [reason for reason, _ in world.told]
    assert (reasons.count("Start"), reasons[-1]) == (6, "Verdict")


def test_a_run_is_an_rljob_that_queues_by_itself() -> None:
    queue = {"kueue.x-k8s.io/queue-name": "team"}
    experiment = document(2, seeds=2)
    experiment["metadata"] |= {"labels": {**queue, "cost": "7"}, "annotations": {"note": "x"}}
    experiment["spec"]["template"]["metadata"] = {"labels": {"of": "template"}, "annotations": {"of": "template"}}
    world = World(experiment, spread)
    world.live()
    made = world.of(RLJOBS)["a-1-s2"]
    about = made["metadata"]
    assert about["labels"] == {
        **queue, "of": "template", "rljob.dev/experiment": "a", "rljob.dev/trial": "1", "rljob.dev/seed": "2",
    }  # fmt: skip
    (owner,) = about["ownerReferences"]
    uid = world.objects["rlexperiments", "a"]["metadata"]["uid"]
    assert (about["annotations"], owner["kind"], owner["controller"], owner["uid"]) == (
        {"of": "template"}, "RLExperiment", True, uid,
    )  # fmt: skip
    rate = parse_experiment(experiment).settings(1)["algorithm.learningRate"]
    assert (made["spec"]["algorithm"]["learningRate"], made["spec"]["seed"]) == (rate, 2)
    assert made["spec"]["successPolicy"]["rawFrames"] == 9000


def test_suspended_nothing_plays_and_nothing_is_decided_and_then_it_goes_on() -> None:
    undisturbed = World(document(4, prune=HALVING), spread)
    undisturbed.live()
    world = World(document(4, prune=HALVING), spread)
    world.turns()
    world.settle()
    world.edit(RLEXPERIMENTS, "a", suspend=True)
    assert world.state == "Suspending"
    lines, frames = world.text, dict(world.frames)
    for _ in range(5):
        world.clock += 100
        world.tick()
        world.settle()
    assert (world.state, world.condition("Suspended")["status"]) == ("Suspended", "True")
    assert (world.text, world.frames) == (lines, frames)
    world.start()
    world.edit(RLEXPERIMENTS, "a", suspend=False)
    world.live()
    assert world.text == undisturbed.text, "time that it was suspended counts nowhere"


def test_a_job_that_was_deleted_by_hand_begins_anew() -> None:
    world = World(document(3, parallelism=3), spread)
    world.turns()
    del world.objects["rljobs", "a-1"]
    world.frames["a-1"], world.states["a-1"] = 0, {}
    status = world.live()
    assert (status["done"], status["failed"]) == (3, 0)
    assert [entry["kind"] for entry in world.entries()].count("Start") == 3


def test_a_job_that_was_edited_by_hand_is_no_longer_that_trial() -> None:
    world = World(document(3, parallelism=3), spread)
    world.settle()
    world.edit(RLJOBS, "a-1", actors={"replicas": 5})
    assert world.status_document["failed"] == 0, "its number of actors makes no other trial"
    world.edit(RLJOBS, "a-1", algorithm={"gamma": 0.5})
    assert world.live()["failed"] == 1
    assert ("Fail", "trial 1 failed: RLJob a-1 was changed by hand, so that it is another trial") in world.told


def test_a_name_that_another_has_is_told_and_waited_for() -> None:
    world = World(document(3, parallelism=3), spread)
    other = {"metadata": {"name": "a-1", "namespace": NAMESPACE, "labels": {"rljob.dev/trial": "1"}}}
    world.put(RLJOBS, {**other, "spec": {"suspend": True, "successPolicy": {"rawFrames": 1}}})
    for _ in range(30):
        world.turns()
        world.clock += 10  # figures alone are written every five seconds
    assert (world.state, world.status_document["done"]) == ("Degraded", 2), "the others went on"
    assert "RLJob a-1 is refused: that of another has its name: delete it" in world.condition("Ready")["message"]
    del world.objects["rljobs", "a-1"]
    world.states["a-1"] = {}
    assert world.live()["done"] == 3


@pytest.mark.parametrize(
    ("refusal", "failed", "made"),
    [
        (Forbidden("ValidatingAdmissionPolicy 'cost' denied request: name a team", code=403), 1, ["a-0", "a-2"]),
        (QuotaExceeded("exceeded quota: jobs, used: 2, limited: 2", code=403), 0, ["a-0", "a-1", "a-2"]),
    ],
)
def test_a_run_that_is_refused_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, refusal: ApiError, failed: int, made: list[str]
) -> None:
    world = World(document(3, parallelism=3), spread)
    with monkeypatch.context() as meanwhile:
        of_a_1 = lambda resource, job: refusal if (resource, job["metadata"]["name"]) == (RLJOBS, "a-1") else None  # noqa: E731
        meanwhile.setattr(world, "refuses", of_a_1)
        world.turns(20)
    assert world.status_document["failed"] == failed
    assert [entry["trial"] for entry in world.entries() if entry["kind"] == "Score"] == [0, 2], "the others were judged"
    said = f"trial 1: RLJob a-1 is refused: {refusal}"
    assert ("NotMade", said) in world.told
    assert failed or said in world.condition("Ready")["message"]
    assert (world.live()["failed"], sorted(world.of(RLJOBS))) == (failed, made)


def test_a_judge_that_is_refused_is_told_and_can_be_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    world, least = (
        World(document(2), spread),
        Forbidden("minimum cpu usage per Container is 2, but request is 1", code=403),
    )

    def refuses(resource: Resource, made: dict[str, Any]) -> ApiError | None:
        asks_for_less = resource is PODS and made["spec"]["containers"][0]["resources"]["requests"]["cpu"] != "2"
        return least if asks_for_less else None

    monkeypatch.setattr(world, "refuses", refuses)
    world.turns(20)
    assert "trial 0: pod a-0-judge-0-0 is refused: minimum cpu" in world.condition("Ready")["message"]
    world.edit(RLEXPERIMENTS, "a", template={"spec": {"evaluator": {"resources": {"requests": {"cpu": "2"}}}}})
    assert world.live()["failed"] == 0


def test_a_judge_or_a_journal_without_labels_is_found_by_its_owner() -> None:
    calm, world = World(document(2), spread), World(document(2), spread)
    calm.live()
    for _ in range(16):
        world.turns()
        for each in (*world.of(PODS).values(), *world.of(CONFIG_MAPS).values()):
            each["metadata"].pop("labels", None)
    assert world.judged, "they had been made by then"
    world.start()
    world.live()
    assert world.text == calm.text


def test_a_judge_that_fails_is_tried_three_times() -> None:
    world = World(document(2), spread)
    verdict = world.verdict

    def broken(name: str, pod: dict[str, Any]) -> dict[str, Any]:
        if "a-0-judge" not in name:
            return verdict(name, pod)
        world.judged.append(name)
        ended = {"exitCode": 1, "message": f"no checkpoint, says {name}"}
        return {"phase": "Failed", "containerStatuses": [{"name": "worker", "state": {"terminated": ended}}]}

    world.verdict = broken  # type: ignore[method-assign]
    status = world.live()
    assert (status["failed"], status["best"]["trial"]) == (1, 1)
    assert [name for name in world.judged if "a-0" in name] == [f"a-0-judge-0-{attempt}" for attempt in range(3)]
    (why,) = [entry["why"] for entry in world.entries() if entry["kind"] == "Fail"]
    assert why == "it can't be judged: pod a-0-judge-0-2 has failed: no checkpoint, says a-0-judge-0-2"


def test_a_judge_whose_pod_runs_on_for_a_container_beside_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a service mesh, which puts a proxy into every pod that does not end by itself."""
    world = World(document(2), spread)
    verdict, proxy = world.verdict, {"name": "istio-proxy", "state": {"running": {"startedAt": "2026-11-27T12:00:00Z"}}}

    def beside_a_proxy(name: str, pod: dict[str, Any]) -> dict[str, Any]:
        ended = verdict(name, pod)
        return {**ended, "phase": "Running", "containerStatuses": [proxy, *ended["containerStatuses"]]}

    monkeypatch.setattr(world, "verdict", beside_a_proxy)
    status = world.live()
    assert (status["failed"], status["best"]["trial"], status["fresh"]["episodes"]) == (0, 1, 100)
    assert world.of(PODS) == {}, "the proxies are gone with their judges"


def test_a_judge_that_is_drained_counts_as_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(document(1), spread)
    verdict = world.verdict
    running = {"phase": "Running", "containerStatuses": [{"name": "worker", "state": {"running": {}}}]}
    monkeypatch.setattr(world, "verdict", lambda name, pod: running)
    for _ in range(4):
        while not any("status" in pod for pod in world.of(PODS).values()):
            world.turns()
        ((name, pod),) = world.of(PODS).items()
        world.put(PODS, {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-11-27T12:00:30Z"}})
        world.settle()
        ended = {"name": "worker", "state": {"terminated": {"exitCode": 143, "finishedAt": "2026-11-27T12:00:01Z"}}}
        world.put(PODS, {**world.of(PODS)[name], "status": {"phase": "Failed", "containerStatuses": [ended]}})
        world.settle()
        assert list(world.of(PODS)) == ["a-0-judge-0-0"], "no other one while it goes"
        del world.objects[PODS.plural, name]
    monkeypatch.setattr(world, "verdict", verdict)
    assert (world.live()["failed"], world.judged[0]) == (0, "a-0-judge-0-0")


@pytest.mark.parametrize(("reason", "told"), [("Starting", ""), ("WaitingForQuota", "Admitted")])
def test_why_a_run_does_not_come_up_is_told(monkeypatch: pytest.MonkeyPatch, reason: str, told: str) -> None:
    world, when = World(document(2), spread), "2026-11-27T12:00:00Z"
    world.turns(2)
    said = {told or "Ready": "queue lq is full", "Ready": "see condition Admitted" if told else "queue lq is full"}
    conditions = [
        {"type": type, "status": "False", "reason": reason, "message": words, "lastTransitionTime": when}
        for type, words in said.items()
    ]
    waits = RLJobStatus.model_validate({"conditions": conditions})
    with monkeypatch.context() as held:
        held.setattr(world, "status", lambda key, uid: waits)
        world.start()
        world.settle()
        assert f"trial 0: RLJob a-0 is {reason}: queue lq is full" in world.condition("Ready")["message"]
    world.start()
    world.live()
    assert "queue" not in world.condition("Ready")["message"]


def test_why_a_judge_does_not_come_up_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(document(2), spread)
    verdict, full = world.verdict, "0/3 nodes are available: 3 Insufficient cpu."
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": full}
    monkeypatch.setattr(world, "verdict", lambda name, pod: {"phase": "Pending", "conditions": [unscheduled]})
    while not world.of(PODS):
        world.turns()
    world.tick()
    world.settle()
    held = world.condition("Ready")
    words = f"trial 0: pod a-0-judge-0-0 does not come up: {full}"
    assert (held["status"], held["reason"], words in held["message"]) == ("True", "Running", True)
    monkeypatch.setattr(world, "verdict", verdict)
    for name, pod in list(world.of(PODS).items()):
        world.put(PODS, {**pod, "status": verdict(name, pod)})
    world.live()
    assert full not in world.condition("Ready")["message"]


def test_the_best_that_is_gone_at_the_end_is_named_without_a_fresh_verdict() -> None:
    world = World(document(2), spread)
    while "End" not in [entry["kind"] for entry in world.entries()]:
        world.turns()
    for name in ("a-0", "a-1"):
        del world.objects["rljobs", name]
    world.of(PODS).clear()
    assert "fresh" not in world.live()
    assert "trial 1: it can't be judged: its RLJob is not there any more" in world.condition("Complete")["message"]


def test_what_is_refused_is_said_in_the_words_of_rljob_validate() -> None:
    wrong = document(3, parallelism=2)
    wrong["spec"]["search"]["parameters"] = {"algorithm.ppo.learningRat": {"values": [1]}}
    world = World(wrong, spread)
    world.settle()
    accepted = world.condition("Accepted")
    with pytest.raises(ValueError, match="learningRate") as said:
        parse_experiment(wrong)
    assert (world.state, accepted["reason"], accepted["message"]) == ("InvalidSpec", "InvalidSpec", str(said.value))
    assert world.of(RLJOBS) == world.of(CONFIG_MAPS) == {}
    right = {"algorithm.ppo.learningRat": None, "algorithm.gamma": {"values": [0.9, 0.95, 0.99]}}
    world.edit(RLEXPERIMENTS, "a", search={"parameters": right})
    world.live()


@pytest.mark.parametrize("mode", ["ReadWriteOnce", "ReadWriteMany"])
def test_members_need_a_claim_that_all_can_mount(mode: str) -> None:
    experiment = population()
    claim = {"persistentVolumeClaim": {"claimName": "runs"}}
    experiment["spec"]["template"]["spec"]["checkpoint"] = {"storage": claim}
    world = World(experiment, spread)
    world.put(VOLUME_CLAIMS, {"metadata": {"name": "runs"}, "spec": {"accessModes": [mode]}})
    world.settle()
    accepted, refused = world.condition("Accepted"), mode == "ReadWriteOnce"
    assert (accepted["status"], len(world.of(RLJOBS)) > 0) == (str(not refused), not refused)
    assert accepted["message"].startswith("claim runs is ReadWriteOnce, ReadWriteMany is needed: template.") == refused


def owned(labels: dict[str, str] | None = None, **spec: Any) -> Owned:
    """The job of trial 0, whose template says this, too."""
    about, whole = {"name": "a-0", "labels": labels or {}}, document(1)
    made = {**whole, "kind": "RLJob", "metadata": about, "spec": {**whole["spec"]["template"]["spec"], **spec}}
    return Owned(parse_job(made), "uid")


def judge(job: Owned, **settings: Any) -> dict[str, Any]:
    return render.judge(job, Settings(image="rl:1", **settings), "a", "a-0-judge-0-0", ["--seed", "1"])


@pytest.mark.parametrize("asks", [True, False])
def test_a_pod_that_judges_queues_as_its_run_does_where_the_operator_asks_kueue(asks: bool) -> None:
    queue = {"kueue.x-k8s.io/queue-name": "team"}
    about = judge(owned(queue), kueue=asks)["metadata"]
    (owner,) = about["ownerReferences"]
    assert (queue.items() <= about["labels"].items(), owner["controller"]) == (asks, not asks)
    assert (owner["kind"], owner["uid"]) == ("RLJob", "uid"), "it goes with its run"


def test_a_pod_that_judges_has_what_its_learners_pod_template_says() -> None:
    """What makes its environment work, or lets it read the bucket, may be in there."""
    identity = {"azure.workload.identity/use": "true"}
    fetch = {"name": "fetch", "image": "fetch:1", "volumeMounts": [{"name": "rljob-tmp", "mountPath": "/tmp"}]}
    template = {
        "metadata": {"labels": identity, "annotations": {"vault.hashicorp.com/agent-inject": "true"}},
        "spec": {"initContainers": [fetch], "containers": [{"name": "proxy", "image": "proxy:1"}]},
    }
    pod = judge(owned(learner={"podTemplate": template}, tracking={"mlflow": {"uri": "http://mlflow:5000"}}))
    about, spec = pod["metadata"], pod["spec"]
    assert about["labels"] == {**identity, "rljob.dev/experiment": "a", "rljob.dev/job": "a-0"}
    assert about["annotations"]["vault.hashicorp.com/agent-inject"] == "true"
    assert not [key for key in about["annotations"] if key.startswith("rljob.dev/")], "it is none of the job's members"
    names = [[each["name"] for each in spec[kind]] for kind in ("initContainers", "containers")]
    assert names[0] == ["fetch"], "its run is not told to a tracker twice"
    assert (sorted(names[1]), spec["restartPolicy"]) == (["proxy", "worker"], "Never")


BUCKET = {"url": "s3://b/a-0", "endpoint": "http://s3:7070"}
CLAIM = {"claimName": "all", "subPath": "team/a-0"}


@pytest.mark.parametrize(
    ("storage", "where", "mounted", "server"),
    [
        ({"objectStore": BUCKET}, "s3://b/a-0", [], ["http://s3:7070"]),
        ({"persistentVolumeClaim": CLAIM}, "/var/lib/rljob-runs/a-0/checkpoints", ["team"], []),
    ],
)
def test_a_pod_that_judges_names_checkpoints_as_all_runs_reach_them(
    storage: dict[str, Any], where: str, mounted: list[str], server: list[str]
) -> None:
    job = owned({"rljob.dev/experiment": "a"}, checkpoint={"storage": storage})
    pod = judge(job)
    for made in (pod, pod_of(job, "learner", "learner-1", "", Settings(image="rl:1"))):
        (worker,) = made["spec"]["containers"]
        shared = [each for each in worker["volumeMounts"] if each["mountPath"] == "/var/lib/rljob-runs"]
        volumes = [each["name"] for each in made["spec"]["volumes"]]
        assert ([each["subPath"] for each in shared], len(volumes)) == (mounted, len(set(volumes)))
    (worker,) = pod["spec"]["containers"]
    told = [each["value"] for each in worker["env"] if each["name"] == "AWS_ENDPOINT_URL_S3"]
    assert (worker["command"][4], told) == (where, server), "a learner has it in its job"


def test_of_one_that_has_begun_little_may_change() -> None:
    world = World(document(4), spread)
    world.settle()
    world.edit(RLEXPERIMENTS, "a", budget={"rawFrames": 8000})
    refused = world.condition("Accepted")
    assert (refused["status"], world.state) == ("False", "Running"), "what it began with goes on"
    assert refused["message"].startswith("of an experiment that has begun only parallelism")
    world.edit(RLEXPERIMENTS, "a", budget={"rawFrames": 9000}, parallelism=1)
    assert world.condition("Accepted")["status"] == "True"
    assert [entry["kind"] for entry in world.entries()].count("Settings") == 2


def test_one_that_has_ended_goes_on_with_more_trials() -> None:
    world = World(document(3, prune=HALVING), spread)
    assert world.live()["done"] == 3
    world.edit(RLEXPERIMENTS, "a", seeds=1, budget={"rawFrames": 7})
    # It stays ended with what can't be.
    assert (world.state, world.condition("Accepted")["status"]) == ("Complete", "False")
    world.edit(RLEXPERIMENTS, "a", search=document(6)["spec"]["search"], budget={"rawFrames": 9000})
    assert (world.condition("Complete"), "completionTime" in world.status_document) == ({}, False)
    found = world.live()
    assert (world.state, found["done"], found["trials"]) == ("Complete", 6, 6)
    assert [entry["kind"] for entry in world.entries()].count("End") == 2


def test_time_that_is_up_ends_it() -> None:
    world = World(document(9, budget={"rawFrames": 9000, "seconds": 60}, parallelism=1), spread)
    world.turns(20)
    assert [entry["kind"] for entry in world.entries()].count("Score") == 1
    world.clock += 61
    assert (world.live()["done"], world.condition("Complete")["reason"]) == (2, "TimeUp")


def lost(world: World, part: str, said: str) -> dict[str, Any]:
    """A part of the journal that is taken away is told, while another operator looks; answers it."""
    kept: dict[str, Any] = world.objects.pop(("configmaps", part))
    world.start()
    world.settle()
    assert (world.state, said in world.condition("Ready")["message"]) == ("JournalUnreadable", True)
    return kept


def test_a_journal_that_was_tampered_with_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "PART_BYTES", 300)
    world = World(document(5, parallelism=5), spread)
    world.turns(18)
    sizes = [len(each["data"]["journal.jsonl"]) for each in world.of(CONFIG_MAPS).values()]
    assert (len(sizes) > 2, max(sizes) < 2500) == (True, True)
    kept = lost(world, "a-journal-1", "ConfigMap a-journal-1 of the journal is gone")
    world.objects["configmaps", "a-journal-1"] = kept
    world.live()


def test_a_journal_whose_last_part_is_gone_is_told() -> None:
    world = World(document(3), spread)
    world.turns(12)
    lines, jobs = len(world.entries()), len(world.of(RLJOBS))
    kept = lost(world, "a-journal-0", f"only 0 of {lines} lines of the journal are there")
    assert (world.of(CONFIG_MAPS), len(world.of(RLJOBS))) == ({}, jobs), "nothing is begun anew"
    world.objects["configmaps", "a-journal-0"] = kept
    world.live()
