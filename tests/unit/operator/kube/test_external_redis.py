"""A job whose shards use a Redis that others run: its pods, what they are told, and what removes their log."""

import json

import pytest
from rljob_operator.kube.render import names
from rljob_operator.kube.render.external_redis import removal
from rljob_operator.kube.render.names import PodProblem
from rljob_operator.kube.render.settings import Settings

from .rendered import child, environment, names_of, owned, pod_of, worker

URL = "spec.replay.redis.external.url=rediss://redis.db:6379/1"
SECRET = "spec.replay.redis.external.secretRef.name=login"


def taken(key: str, **more: bool) -> dict[str, object]:
    return {"valueFrom": {"secretKeyRef": {"name": "login", "key": key, **more}}}


def test_no_redis_and_no_volume_is_made_for_it() -> None:
    job = owned(URL, "spec.replay.shards=2")
    pod, beside = pod_of(job, "replay-1")["spec"], pod_of(owned(), "replay-0")["spec"]
    assert "initContainers" not in pod
    assert not [each for each in pod["volumes"] if "redis" in each["name"]]
    assert not [each for each in names_of(job) if each.startswith("PersistentVolumeClaim") and "replay" in each]
    assert pod["terminationGracePeriodSeconds"] < beside["terminationGracePeriodSeconds"]


def test_a_shard_is_told_where_it_is_and_what_its_keys_are() -> None:
    told = environment(pod_of(owned(URL, "spec.replay.shards=2"), "replay-1"))
    where, keys = "rediss://redis.db:6379/1", "default/pong-apex/uid-1/replay-1"
    assert (told["RLJOB_REDIS"], told["RLJOB_REDIS_KEYS"]) == (where, keys)
    assert not [name for name in environment(pod_of(owned(URL), "learner")) if "REDIS" in name]


def test_the_login_is_a_variable_from_the_secret_and_nowhere_else() -> None:
    job = owned(URL, SECRET)
    assert [each for each in worker(pod_of(job, "replay-0"))["env"] if "valueFrom" in each] == [
        {"name": "RLJOB_REDIS_PASSWORD", **taken("password")},
        {"name": "RLJOB_REDIS_USERNAME", **taken("username", optional=True)},
        {"name": "RLJOB_REDIS_CA", **taken("ca.crt", optional=True)},
    ]
    assert "secretKeyRef" not in json.dumps(pod_of(job, "learner"))
    with pytest.raises(PodProblem, match=r"env\[RLJOB_REDIS_PASSWORD\]: the operator sets it, to a key of a Secret"):
        pod_of(owned(URL, SECRET, "spec.replay.env=[{name: RLJOB_REDIS_PASSWORD, value: a}]"), "replay-0")
    mine = owned(URL, "spec.replay.env=[{name: RLJOB_REDIS_PASSWORD, value: a}]")
    assert environment(pod_of(mine, "replay-0"))["RLJOB_REDIS_PASSWORD"] == "a", "without a Secret it is free"
    assert "redis.db" in child(job, "ConfigMap", "pong-apex-job")["data"][names.JOB_FILE]


def test_a_job_that_keeps_no_experience_uses_none() -> None:
    pod = pod_of(owned(URL, "spec.checkpoint.include=[Learner]"), "replay-0")
    assert environment(pod)["RLJOB_REDIS"] == "none"
    assert names.EXTERNAL_LOG_ANNOTATION not in pod["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("sets", "member", "says"),
    [
        ((URL,), "replay-0", True),
        ((URL,), "learner", False),
        ((), "replay-0", False),
        (("spec.replay.redis.external.url=unix:///run/mine/redis.sock",), "replay-0", False),  # that one is in the pod
    ],
)
def test_only_a_shards_pod_says_that_a_log_is_to_be_removed(sets: tuple[str, ...], member: str, says: bool) -> None:
    assert (names.EXTERNAL_LOG_ANNOTATION in pod_of(owned(*sets), member)["metadata"]["annotations"]) == says


def test_the_removal_has_what_the_shard_had_and_belongs_to_nobody() -> None:
    more = (
        "spec.imagePullSecrets=[{name: mine}]",
        "spec.replay.shards=3",
        "spec.replay.tolerations=[{key: a, operator: Exists}]",
    )
    pod = pod_of(owned(URL, SECRET, *more), "replay-2", Settings(image="rl:7"))
    job = removal(pod)
    about, template = job["metadata"], job["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert container["command"][1:] == [
        "-m", "rljob.replay.remove_log", "rediss://redis.db:6379/1", "default/pong-apex/uid-1/replay-2", "2",
    ]  # fmt: skip
    variables = ["RLJOB_REDIS_PASSWORD", "RLJOB_REDIS_USERNAME", "RLJOB_REDIS_CA"]
    assert (container["image"], [each["name"] for each in container["env"]]) == ("rl:7", variables)
    taken_over = {name: template["spec"][name] for name in ("imagePullSecrets", "tolerations")}
    assert taken_over == {"imagePullSecrets": [{"name": "mine"}], "tolerations": [{"key": "a", "operator": "Exists"}]}
    assert "ownerReferences" not in about
    assert names.MANAGED_BY not in {**about["labels"], **template["metadata"]["labels"]}, "no pod of the job"
    assert (about["name"], about["namespace"]) == (pod["metadata"]["name"], "default")


def test_a_pod_without_such_a_log_has_none_removed() -> None:
    pod = pod_of(owned(URL), "replay-0")
    for container in pod["spec"]["containers"]:
        container["env"] = [each for each in container.get("env", ()) if each["name"] != "RLJOB_REDIS_KEYS"]
    assert removal(pod) is None, "a podTemplate has taken the variables away"
    learner = pod_of(owned(URL), "learner")
    learner["metadata"]["annotations"][names.EXTERNAL_LOG_ANNOTATION] = "true"
    assert removal(learner) is None, "a podTemplate has written the mark"
