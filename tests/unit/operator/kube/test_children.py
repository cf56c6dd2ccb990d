"""What a job has besides its pods: as much as it needs, with names that pods and objects agree on."""

import base64
from dataclasses import replace
from typing import Any

import pytest
from rljob.api import parse_job
from rljob.api.document import parse_document
from rljob_operator.core.member import Role
from rljob_operator.kube.process.rbac import TABLE
from rljob_operator.kube.render import names
from rljob_operator.kube.render.children import children, unwanted
from rljob_operator.kube.render.pod import SAVE_SECONDS
from rljob_operator.kube.render.settings import Settings

from .rendered import (
    CARTPOLE,
    CENTRAL,
    EXAMPLES,
    SECRETS,
    SETTINGS,
    child,
    environment,
    names_of,
    owned,
    pod_of,
    worker,
)

CORE, ACTORS = "pong-apex-keys-core", "pong-apex-keys-actors"
ALWAYS = {"ConfigMap/pong-apex-job", "Service/pong-apex", f"Secret/{CORE}"}
LEARNER_CLAIM, SHARD_CLAIM = "PersistentVolumeClaim/pong-apex-learner", "PersistentVolumeClaim/pong-apex-replay-0"
POLICY = "NetworkPolicy/pong-apex"
CLAIMING = replace(SETTINGS, checkpoint_size="9Gi")
STORED = "spec.checkpoint.storage={persistentVolumeClaim: {claimName: mine, subPath: runs/a}}"


@pytest.mark.parametrize(
    ("sets", "lacks"),
    [
        ((), set()),
        (("spec.network.encryption=None",), {f"Secret/{ACTORS}"}),
        (("spec.network.policy=Disabled",), {POLICY}),
        (("spec.replay.redis.persistence.mode=None",), {SHARD_CLAIM}),
        (("spec.checkpoint.include=[Learner]",), {SHARD_CLAIM}),
    ],
)
def test_a_job_has_what_its_manifest_asks_for(sets: tuple[str, ...], lacks: set[str]) -> None:
    everything = ALWAYS | {f"Secret/{ACTORS}", LEARNER_CLAIM, SHARD_CLAIM, POLICY}
    assert names_of(owned(*sets)) == everything - lacks
    gone = {f"{kind}/{name}" for kind, name in unwanted(owned(*sets))}
    assert gone == lacks & {POLICY}, "what goes when the manifest changes; volumes and keys stay"


def test_a_job_without_replay_has_nothing_for_shards() -> None:
    assert not [name for name in names_of(owned(base=CARTPOLE)) if "replay" in name and "keys" not in name]


def test_every_child_is_the_jobs_own() -> None:
    for document in children(owned(), SECRETS, SETTINGS):
        about = document["metadata"]
        (owner,) = about["ownerReferences"]
        of = (about["namespace"], owner["kind"], owner["name"], owner["uid"], owner["controller"])
        assert of == ("default", "RLJob", "pong-apex", "uid-1", True)
        assert about["labels"].items() >= names.labels("pong-apex").items()


def test_what_pods_mount_is_made() -> None:
    """Every Secret, ConfigMap and claim of the operator's own that a pod of any role names."""
    for job in (owned(*CENTRAL), owned(base=CARTPOLE), owned(STORED)):
        there = names_of(job, CLAIMING) | {"PersistentVolumeClaim/mine"}
        for member in names.first_members(job.job):
            spec = pod_of(job, member, CLAIMING)["spec"]
            volumes = {each["name"]: each for each in spec["volumes"]}
            for volume in volumes.values():
                for kind, field, name in (
                    ("Secret", "secret", "secretName"),
                    ("ConfigMap", "configMap", "name"),
                    ("PersistentVolumeClaim", "persistentVolumeClaim", "claimName"),
                ):
                    assert field not in volume or f"{kind}/{volume[field][name]}" in there
            for container in (*spec["containers"], *spec.get("initContainers", ())):
                assert {each["name"] for each in container["volumeMounts"]} <= set(volumes)


@pytest.mark.parametrize("encryption", ["Curve", "None"])
def test_a_pod_sees_its_own_keys_alone_and_an_actors_node_no_others(encryption: str) -> None:
    job = owned(*CENTRAL, f"spec.network.encryption={encryption}")
    for member in names.first_members(job.job):
        role, spec = Role.of(member), pod_of(job, member)["spec"]
        files = {names.KEYS_FILE: f"keys of {role}"} if encryption == "Curve" else {}
        files |= {names.TOKEN_FILE: "token"} if role is Role.LEARNER else {}
        seen = {}
        for volume in [each["secret"] for each in spec["volumes"] if "secret" in each]:
            assert (volume["secretName"] == ACTORS) == (role is Role.ACTOR)
            stored = child(job, "Secret", volume["secretName"])
            assert "immutable" not in stored, "a kubelet keeps that for the next job of the name"
            assert (set(stored["data"]) == {"actor.json"}) == (role is Role.ACTOR), "a kubelet may read all of it"
            seen |= {each["path"]: base64.b64decode(stored["data"][each["key"]]).decode() for each in volume["items"]}
        assert seen == files


def test_roles_read_the_job_in_force() -> None:
    job = owned(base=EXAMPLES / "pong-apex.yaml")
    text = child(job, "ConfigMap", "pong-apex-job")["data"][names.JOB_FILE]
    assert parse_job(parse_document(text.encode(), "job.yaml")) == job.job


@pytest.mark.parametrize(
    ("sets", "settings", "source", "sub_path"),
    [
        ((), replace(SETTINGS, checkpoint_size=""), {"emptyDir": {}}, None),
        ((), CLAIMING, {"persistentVolumeClaim": {"claimName": "pong-apex-learner"}}, None),
        ((STORED,), CLAIMING, {"persistentVolumeClaim": {"claimName": "mine"}}, "runs/a"),
        (("spec.checkpoint.storage={objectStore: {url: s3://b/p}}",), CLAIMING, {"emptyDir": {}}, None),
    ],
)
def test_where_checkpoints_are(
    sets: tuple[str, ...], settings: Settings, source: dict[str, Any], sub_path: str | None
) -> None:
    run = {"name": "rljob-run", "emptyDir": {}}
    pod, actor = (pod_of(owned(*sets), member, settings) for member in ("learner", "actor-0"))
    (mount,) = [each for each in worker(pod)["volumeMounts"] if each["mountPath"] == names.RUN_DIR]
    (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == mount["name"]]
    assert (volume, mount.get("subPath")) == ({"name": mount["name"], **source}, sub_path)
    claimed = source == {"persistentVolumeClaim": {"claimName": "pong-apex-learner"}}
    assert (LEARNER_CLAIM in names_of(owned(*sets), settings)) == claimed
    assert [each for each in actor["spec"]["volumes"] if each["name"] == "rljob-run"] == [run]


def test_a_stores_credentials_reach_the_learner_alone() -> None:
    job = owned("spec.checkpoint.storage={objectStore: {url: s3://b/p, secretRef: {name: s3}}}")
    assert worker(pod_of(job, "learner"))["envFrom"] == [{"secretRef": {"name": "s3"}}]
    assert "envFrom" not in worker(pod_of(job, "actor-0"))


def test_a_claim_is_as_the_manifest_says() -> None:
    job = owned("spec.replay.redis.persistence={storage: 7Gi, storageClassName: fast}", "spec.replay.shards=2")
    shard = child(job, "PersistentVolumeClaim", "pong-apex-replay-1")["spec"]
    learner = child(owned(), "PersistentVolumeClaim", "pong-apex-learner", CLAIMING)["spec"]
    assert [each["resources"]["requests"]["storage"] for each in (shard, learner)] == ["7Gi", "9Gi"]
    # An empty class would mean none instead of the default.
    assert (shard["storageClassName"], "storageClassName" in learner) == ("fast", False)


@pytest.mark.parametrize(
    ("sets", "size"),
    [
        (("capacity=2000000", "shards=1"), "11Gi"),  # 3 * 2,000,000 * (84 * 84 / 4 + 64) bytes are 10.2 GiB
        (("capacity=2000000", "shards=4"), "3Gi"),
        (("capacity=50000", "shards=1"), "1Gi"),
        (("capacity=2000000", "capacityBytes=1Gi", "shards=1"), "3Gi"),
    ],
)
def test_a_shard_claims_what_its_share_of_the_capacity_takes(sets: tuple[str, ...], size: str) -> None:
    job = owned(*(f"spec.replay.{each}" for each in sets), "spec.environment.atari.frameSize=84")
    assert child(job, "PersistentVolumeClaim", "pong-apex-replay-0")["spec"]["resources"]["requests"]["storage"] == size


def test_who_may_come_in() -> None:
    settings = replace(SETTINGS, operator_namespaces={"team": "ops"}, prometheus_namespaces=None)
    spec = child(owned("spec.monitoring.metricsPort=9100"), "NetworkPolicy", "pong-apex", settings)["spec"]
    peers, readers = spec["ingress"]
    assert spec["policyTypes"] == ["Ingress"], "nothing that goes out is held back"
    assert peers == {"from": [{"podSelector": {"matchLabels": names.labels("pong-apex")}}]}
    ports = [each["port"] for each in readers["ports"]]
    assert (readers["from"], ports) == ([{"namespaceSelector": {"matchLabels": {"team": "ops"}}}], [9100])
    other = replace(settings, prometheus_namespaces={"team": "see"})
    assert len(child(owned(), "NetworkPolicy", "pong-apex", other)["spec"]["ingress"][1]["from"]) == 2


def test_only_a_learners_own_processes_reach_their_ports() -> None:
    job = owned("spec.learner.processes=2", "spec.replay.shards=2")
    others, own = (each["spec"] for each in children(job, SECRETS, SETTINGS) if each["kind"] == "NetworkPolicy")
    learners = names.role_labels("pong-apex", Role.LEARNER)
    assert own["podSelector"] == {"matchLabels": learners}
    assert others["podSelector"]["matchExpressions"] == [
        {"key": names.ROLE_LABEL, "operator": "NotIn", "values": ["learner"]}
    ]
    anyone, themselves, _ = own["ingress"]
    assert names.MEETING_PORT not in {each["port"] for each in anyone["ports"]}
    assert themselves == {"from": [{"podSelector": {"matchLabels": learners}}]}
    told = [environment(pod_of(job, name)) for name in ("learner-0", "learner-1")]
    assert [(each["RANK"], each["WORLD_SIZE"], each["MASTER_PORT"]) for each in told] == [
        ("0", "2", "5556"),
        ("1", "2", "5556"),
    ]
    assert {each["MASTER_ADDR"] for each in told} == {names.host(job.job, "learner-0")}
    mounted = [
        {each["name"]: each for each in pod_of(job, name)["spec"]["volumes"]}["rljob-run"]
        for name in ("learner-0", "learner-1")
    ]
    assert ["persistentVolumeClaim" in each for each in mounted] == [True, False]


def test_names_hold_before_pods_are_ready() -> None:
    spec = child(owned(), "Service", "pong-apex")["spec"]
    assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)
    assert {each["name"]: each["port"] for each in spec["ports"]} == {**names.DATA_PORTS, "metrics": 9090}


# ------------------------------------------------------------------------------------------------------ a shard's Redis


def redis_of(*sets: str) -> dict[str, Any]:
    (found,) = pod_of(owned(*sets), "replay-0")["spec"]["initContainers"]
    return dict(found)


def test_a_shards_redis_is_a_sidecar_of_its_own_image_on_its_volume() -> None:
    pod, redis = pod_of(owned("spec.replay.image=shard:1"), "replay-0"), redis_of("spec.replay.image=shard:1")
    assert (redis["image"], redis["restartPolicy"]) == ("shard:1", "Always")
    assert redis["command"][:5] == ["python", "-m", "rljob.replay.redis_server", "serve", names.REDIS_DATA_DIR]
    assert redis["startupProbe"]["exec"]["command"][2:] == ["rljob.replay.redis_server", "ping", names.REDIS_SOCKET]
    volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
    places = {each["mountPath"]: volumes[each["name"]] for each in redis["volumeMounts"]}
    assert places[names.REDIS_DATA_DIR]["persistentVolumeClaim"] == {"claimName": "pong-apex-replay-0"}
    socket = environment(pod)["RLJOB_REDIS"]
    shared = [each["name"] for each in worker(pod)["volumeMounts"] if socket.startswith(each["mountPath"] + "/")]
    assert shared == [places[names.REDIS_SOCKET_DIR]["name"]], "both see the socket"
    assert pod["spec"]["terminationGracePeriodSeconds"] > SAVE_SECONDS


def test_a_redis_of_another_image_is_started_alike() -> None:
    redis = redis_of("spec.replay.redis.image=redis:8", "spec.replay.redis.persistence.mode=AppendOnly")
    words = dict(zip(redis["command"][1::2], redis["command"][2::2], strict=True))
    assert (redis["image"], redis["command"][0]) == ("redis:8", "redis-server")
    assert words.items() >= {"--port": "0", "--unixsocket": names.REDIS_SOCKET, "--dir": names.REDIS_DATA_DIR}.items()
    assert (words["--appendonly"], words["--save"]) == ("yes", "")
    assert redis["startupProbe"]["exec"]["command"][0] == "redis-cli"


@pytest.mark.parametrize(
    ("sets", "most", "resources"),
    [
        (
            ("spec.replay.redis.resources={requests: {cpu: 1}, limits: {memory: 4Gi}}",),
            3 << 30,
            {"requests": {"cpu": "1"}, "limits": {"memory": "4Gi"}},
        ),
        ((), 0, {"requests": dict(SETTINGS.redis_requests)}),
    ],
)
def test_a_redis_fills_no_more_than_its_limit_can_hold(
    sets: tuple[str, ...], most: int, resources: dict[str, Any]
) -> None:
    redis = redis_of(*sets)
    assert (redis["command"][-1], redis["resources"]) == (str(most), resources)


@pytest.mark.parametrize("without", ["spec.replay.redis.persistence.mode=None", "spec.checkpoint.include=[Learner]"])
def test_a_shard_that_keeps_nothing_has_none(without: str) -> None:
    pod = pod_of(owned(without), "replay-0")
    assert ("initContainers" in pod["spec"], environment(pod)["RLJOB_REDIS"]) == (False, "none")


def test_no_claim_is_ever_deleted() -> None:
    assert not [name for kind, name in unwanted(owned("spec.replay.shards=2")) if "VolumeClaim" in kind]
    assert all("delete" not in each.verbs for each in TABLE if "persistentvolumeclaims" in each.resources)


# --------------------------------------------------------------------------------------------------------------- trackers


def test_trackers_are_sidecars_of_the_learners_pod_and_alone_have_the_credentials() -> None:
    sets = (
        "spec.tracking.wandb.project=pong",
        "spec.tracking.mlflow.uri=http://mlflow:5000",
        "spec.tracking.secretRef.name=keys",
        "spec.learner.image=learner:1",
    )
    job = owned(*sets)
    spec, plain = (pod_of(each, "learner")["spec"] for each in (job, owned()))
    credentials = {"secretRef": {"name": "keys"}}
    assert [each["name"] for each in spec["initContainers"]] == ["tracker-wandb", "tracker-mlflow"]
    for name, each in zip(("wandb", "mlflow"), spec["initContainers"], strict=True):
        assert (each["image"], each["restartPolicy"], each["envFrom"]) == ("learner:1", "Always", [credentials])
        assert each["command"][2:] == ["rljob.tracking.sender", names.RUN_DIR, name, "--job", "/etc/rljob/job/job.yaml"]
        assert {"name": "RLJOB_RUN_ID", "value": job.uid} in each["env"]
        assert {mount["mountPath"] for mount in each["volumeMounts"]} == {names.RUN_DIR, names.JOB_DIR, "/tmp"}
        assert "startupProbe" not in each, "the learner would wait for it"
    assert credentials not in worker(pod_of(job, "learner")).get("envFrom", [])
    assert spec["terminationGracePeriodSeconds"] == plain["terminationGracePeriodSeconds"] + 15
    for without in (plain, pod_of(job, "actor-0")["spec"]):
        assert "initContainers" not in without
