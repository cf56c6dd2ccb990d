"""The pod of a member: it starts the role that it should, with addresses that fit together, and gets the time it needs."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rljob.algorithms.registry import with_own_parts
from rljob.api import load_manifest
from rljob.api.roles import RoleSpec
from rljob.cli.app import app
from rljob.roles.options import RoleOptions
from rljob_operator.core.member import Role
from rljob_operator.kube.render import names
from rljob_operator.kube.render.names import PodProblem
from rljob_operator.kube.render.settings import Settings
from typer.testing import CliRunner

from tests.support.paths import MANIFESTS, PLUGINS
from tests.unit.operator.kube.rendered import (
    CARTPOLE,
    CENTRAL,
    MEMBERS,
    PONG,
    SETTINGS,
    child,
    environment,
    owned,
    pod_of,
    with_section,
    worker,
)

STARTS: list[tuple[Path, tuple[str, ...]]] = [
    *((file, ()) for file in MANIFESTS),
    (PONG, CENTRAL),
    (CARTPOLE, CENTRAL),
    (CARTPOLE, ("spec.network.encryption=None",)),
]


def started(pod: dict[str, Any], folder: Path, job_yaml: str, monkeypatch: pytest.MonkeyPatch) -> RoleOptions:
    """What the role's function would get if the container ran here, with its files in ``folder``."""
    files = {names.JOB_DIR: job_yaml, names.KEYS_DIR: "{}"}
    mounted = {each["mountPath"] for each in worker(pod)["volumeMounts"]}
    moved = {}
    for name, value in environment(pod).items():
        for place in (*files, names.RUN_DIR):
            if value.startswith(place):
                assert place in mounted, f"{name}={value} is not there"
                value = f"{folder}{value}"
                if place in files:
                    Path(value).parent.mkdir(parents=True, exist_ok=True)
                    Path(value).write_text(files[place])
        moved[name] = value
    caught: list[RoleOptions] = []

    def run(options: RoleOptions, stop: threading.Event) -> None:
        caught.append(options)

    monkeypatch.setattr("rljob.roles.command.role_function", lambda role: run)
    for each in ("setproctitle", "setthreadtitle"):
        monkeypatch.setattr(f"rljob.roles.command.{each}", lambda title: None)
    monkeypatch.setattr("rljob.wire.security._Plain.permitted", False)
    result = CliRunner().invoke(app, worker(pod)["args"], env=moved)
    assert result.exit_code == 0, result.stderr
    return caught[0]


@pytest.mark.parametrize(("file", "sets"), STARTS, ids=[f"{file.stem} {' '.join(sets)}" for file, sets in STARTS])
def test_every_member_starts_and_finds_its_peers(
    file: Path, sets: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each address that a member connects to is one that a member binds and its container names as a port. What a job names by a
    file is found by its module, as in an image with /opt/plugins."""
    monkeypatch.syspath_prepend(PLUGINS)
    job = owned(*sets, base=file)
    job_yaml = child(job, "ConfigMap", f"{job.name}-job")["data"][names.JOB_FILE]
    bound: dict[str, set[str]] = {}
    wanted: dict[str, set[str]] = {}
    for number, member in enumerate(names.first_members(job.job)):
        pod = pod_of(job, member)
        options = started(pod, tmp_path / str(number), job_yaml, monkeypatch)
        assert options.job == with_own_parts(load_manifest(file, sets))
        assert (options.name, options.on_cluster, options.metrics_host) == (member, True, "*")
        assert (options.keys is None) == ("encryption=None" in " ".join(sets))
        addresses = {
            "ingest": options.replay_ingest,
            "sample": options.replay_sample,
            "weights": (options.weights,),
            "notice": (options.notice,),
            "inference": options.inference,
        }
        ports = {each["name"]: each["containerPort"] for each in worker(pod)["ports"]}
        assert ports.pop("metrics") == options.metrics_port == job.job.spec.monitoring.metrics_port
        assert {what for what, each in addresses.items() if any("*" in address for address in each)} == set(ports)
        for what, each in addresses.items():
            for address in filter(None, each):
                host, _, port = address.removeprefix("tcp://").partition(":")
                assert int(port) == names.DATA_PORTS[what]
                where = member if host == "*" else host.removesuffix(f".{job.name}.default.svc")
                (bound if host == "*" else wanted).setdefault(what, set()).add(where)
    for what, peers in wanted.items():
        assert peers == bound[what], what


def test_a_pod_has_its_members_name_and_is_counted() -> None:
    pod = pod_of(owned(), "replay-0")
    meta, spec = pod["metadata"], pod["spec"]
    assert (meta["name"], spec["hostname"], spec["subdomain"]) == ("pong-apex-replay-0-abcde", "replay-0", "pong-apex")
    assert "finalizers" not in meta, "nothing keeps a pod: namespaces and nodes go"
    assert meta["annotations"]["rljob.dev/revision"] == "revision"
    owner = {"uid": "uid-1", "controller": True, "blockOwnerDeletion": True}
    assert owner.items() <= meta["ownerReferences"][0].items()
    assert (spec["restartPolicy"], spec["automountServiceAccountToken"]) == ("Never", False)
    assert "serviceAccountName" not in spec, "the namespace's default one"
    assert child(owned(), "Service", "pong-apex")["spec"]["selector"].items() <= meta["labels"].items()


@pytest.mark.parametrize("role", Role)
def test_kubectl_takes_the_worker_where_there_are_sidecars(role: Role) -> None:
    annotations = pod_of(owned(*CENTRAL), MEMBERS[role])["metadata"]["annotations"]
    assert annotations["kubectl.kubernetes.io/default-container"] == names.WORKER


@pytest.mark.parametrize("role", Role)
def test_every_role_gets_the_jobs_code_under_its_digest(role: Role) -> None:
    code = f'spec.code={{configMap: mine, digest: "sha256:{"a" * 64}"}}'
    pod = pod_of(owned(*CENTRAL, code), MEMBERS[role])
    assert environment(pod)["RLJOB_CODE"] == f"{names.CODE_DIR}/{'a' * 64}.tar.gz"
    (mounted,) = [each for each in worker(pod)["volumeMounts"] if each["mountPath"] == names.CODE_DIR]
    (volume,) = [each["configMap"] for each in pod["spec"]["volumes"] if each["name"] == mounted["name"]]
    assert (volume["name"], volume["items"]) == ("mine", [{"key": "code.tar.gz", "path": f"{'a' * 64}.tar.gz"}])
    assert "RLJOB_CODE" not in environment(pod_of(owned(*CENTRAL), MEMBERS[role]))


@pytest.mark.parametrize("role", Role)
def test_a_pod_may_do_as_little_as_possible(role: Role) -> None:
    """Pod Security `restricted`, which tests/cluster has a server check, and a root that is read only."""
    spec = pod_of(owned(*CENTRAL), MEMBERS[role])["spec"]
    assert spec["securityContext"].items() >= {"runAsNonRoot": True, "runAsUser": 10001, "fsGroup": 10001}.items()
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        security = container["securityContext"]
        assert (security["readOnlyRootFilesystem"], security["capabilities"]) == (True, {"drop": ["ALL"]})
        assert container["resources"]["requests"].keys() >= {"cpu", "memory"}


def test_what_a_server_of_a_namespace_assigns_is_left_to_it() -> None:
    pod = pod_of(owned(), "learner", Settings(image="rl:1", run_as_user=None))
    assert pod["spec"]["securityContext"].keys() == {"runAsNonRoot", "seccompProfile"}
    assert all("defaultMode" not in each.get("secret", {}) for each in pod["spec"]["volumes"]), (
        "there is no group to read"
    )
    with pytest.raises(ValueError, match="root"):
        Settings(image="rl:1", run_as_user=0)


def test_the_kubelet_asks_as_a_run_on_one_machine_does() -> None:
    container = worker(pod_of(owned("spec.startupDeadlineSeconds=600"), "learner"))
    live, ready, start = (container[f"{name}Probe"] for name in ("liveness", "readiness", "startup"))
    probes = (live, ready, start)
    assert {each["httpGet"]["port"] for each in probes} == {"metrics"}
    assert [each["httpGet"]["path"] for each in probes] == ["/healthz", "/readyz", "/healthz"]
    assert [each["periodSeconds"] * each["failureThreshold"] for each in probes] == [60, 4, 600]
    assert live["terminationGracePeriodSeconds"] < 10, "who hangs does not drain"
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"


@pytest.mark.parametrize("kind", ["initContainers", "containers"])
def test_a_container_beside_the_worker_says_what_it_printed_last(kind: str) -> None:
    beside = [{"name": "fetch", "image": "a"}, {"name": "quiet", "image": "a", "terminationMessagePolicy": "File"}]
    spec = pod_of(with_section(Role.REPLAY, podTemplate={"spec": {kind: beside}}), "replay-0")["spec"]
    policies = {each["name"]: each["terminationMessagePolicy"] for each in spec["initContainers"] + spec["containers"]}
    last = "FallbackToLogsOnError"
    assert policies == {"fetch": last, "quiet": "File", "redis": last, "worker": last}


@pytest.mark.parametrize(
    ("sets", "role", "least", "most"),
    [
        ((), Role.ACTOR, 25, 10**9),
        ((), Role.LEARNER, 120, 10**9),
        ((), Role.REPLAY, 120, 10**9),  # the service, and then its Redis
        (("spec.replay.redis.persistence.mode=None",), Role.REPLAY, 60, 119),
    ],
)
def test_a_pod_has_the_time_that_its_role_needs_to_leave(
    sets: tuple[str, ...], role: Role, least: int, most: int
) -> None:
    assert least <= pod_of(owned(*sets), MEMBERS[role])["spec"]["terminationGracePeriodSeconds"] <= most


def test_a_spot_actor_plays_on_while_the_next_one_starts() -> None:
    on_spot, off_it = (pod_of(owned(f"spec.actors.spot={spot}"), "actor-0")["spec"] for spot in ("true", "false"))
    (actor,), (other,) = on_spot["containers"], off_it["containers"]
    assert (actor.pop("lifecycle"), actor) == ({"preStop": {"exec": {"command": ["sleep", "10"]}}}, other)
    assert on_spot["terminationGracePeriodSeconds"] == off_it["terminationGracePeriodSeconds"] + 10
    assert "lifecycle" not in worker(pod_of(owned("spec.actors.spot=true"), "learner"))


@pytest.mark.parametrize(("role", "threads"), [(Role.ACTOR, "1"), (Role.LEARNER, None)])
def test_an_actor_computes_in_one_thread(role: Role, threads: str | None) -> None:
    found = environment(pod_of(owned(), MEMBERS[role]))
    assert (found.get("OMP_NUM_THREADS"), found["PYTHONUNBUFFERED"]) == (threads, "1")
    assert found["HOME"] == "/tmp", "what libraries keep in a home has a place to be"
    assert ({"RLJOB_NODE", "RLJOB_ADDRESS"} <= found.keys()) == (role is Role.ACTOR), "actors of a node pass weights on"


def test_a_users_variable_wins_over_a_default_and_not_over_what_the_pod_depends_on() -> None:
    threads = {"name": "OMP_NUM_THREADS", "value": "4"}
    env = worker(pod_of(with_section(Role.ACTOR, env=[threads]), "actor-0"))["env"]
    assert [each for each in env if each["name"] == "OMP_NUM_THREADS"] == [threads]
    job = with_section(Role.ACTOR, env=[{"name": "RLJOB_NAME", "value": "me"}])
    with pytest.raises(PodProblem, match=r"spec\.actors\.env\[RLJOB_NAME\]: the operator sets it"):
        pod_of(job, "actor-0")
    assert pod_of(job, "learner"), "another role's variables are none of it"


def test_shared_memory_grows_with_what_runs_in_it() -> None:
    def mebibytes(member: str, *sets: str) -> int:
        (volume,) = [each for each in pod_of(owned(*sets), member)["spec"]["volumes"] if each["name"] == "rljob-shm"]
        assert volume["emptyDir"]["medium"] == "Memory"
        return int(volume["emptyDir"]["sizeLimit"].removesuffix("Mi"))

    few, many = (mebibytes("actor-0", f"spec.actors.envsPerActor={number}") for number in (8, 64))
    assert (mebibytes("learner"), many - few) == (64, 224)


@pytest.mark.parametrize(
    ("member", "evict"),
    [("learner", ("false", "true")), ("replay-0", ("false", "true")), ("actor-0", ("true", None))],
)
def test_autoscalers_take_away_what_comes_back_cheaply(member: str, evict: tuple[str, str | None]) -> None:
    found = pod_of(owned(), member)["metadata"]["annotations"]
    keys = ("cluster-autoscaler.kubernetes.io/safe-to-evict", "karpenter.sh/do-not-disrupt")
    assert tuple(found.get(key) for key in keys) == evict


ON_GPU, SERVED_BY_GPU = "spec.learner.accelerator.count=1", (*CENTRAL, "spec.inference.accelerator.count=1")


@pytest.mark.parametrize(
    ("member", "sets", "image"),
    [
        ("learner", (), "cpu:1"),
        ("actor-0", (), "cpu:1"),
        ("learner", (ON_GPU,), "gpu:1"),
        ("actor-0", (ON_GPU,), "cpu:1"),
        ("inference-0", SERVED_BY_GPU, "gpu:1"),
        ("learner", SERVED_BY_GPU, "cpu:1"),
        ("inference-0", (*CENTRAL, ON_GPU), "cpu:1"),
        ("learner", (ON_GPU, "spec.image=own:1"), "own:1"),
        ("learner", ("spec.image=own:1", "spec.learner.image=two:1"), "two:1"),
    ],
)
def test_images(member: str, sets: tuple[str, ...], image: str) -> None:
    secret = "spec.imagePullSecrets=[{name: registry}]"
    pod = pod_of(owned(*sets, secret), member, Settings(image="cpu:1", gpu_image="gpu:1"))
    assert (worker(pod)["image"], pod["spec"]["imagePullSecrets"]) == (image, [{"name": "registry"}])


@pytest.mark.parametrize(
    ("resources", "asked"),
    [
        ("{}", {"requests": dict(SETTINGS.requests[Role.EVALUATOR])}),
        ("{requests: {cpu: 2}}", {"requests": {"cpu": "2", "memory": "640Mi"}}),
        # Kubernetes asks for the limit.
        ("{limits: {memory: 1Gi}}", {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi"}}),
    ],
)
def test_a_request_is_the_operators_only_where_the_manifest_says_nothing(resources: str, asked: dict[str, Any]) -> None:
    assert worker(pod_of(owned(f"spec.evaluator.resources={resources}"), "evaluator"))["resources"] == asked


Check = Callable[[dict[str, Any]], bool]

REQUIRED = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
    {"matchExpressions": [{"key": "arch", "operator": "Exists"}]}]}}}  # fmt: skip
SCRATCH = {"name": "scratch", "persistentVolumeClaim": {"claimName": "scratch"}}
MOUNT = {"name": "scratch", "mountPath": "/scratch", "readOnly": True}
PLAIN = {
    "affinity": REQUIRED,
    "dnsPolicy": "Default",
    "priorityClassName": "high",
    "runtimeClassName": "gvisor",
    "serviceAccountName": "robot",
}
SECRET = {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}

ROWS: dict[str, tuple[Any, Check]] = {
    "resources": (
        {"requests": {"cpu": "3", "example.com/fpga": "1"}, "limits": {"memory": "5Gi", "example.com/fpga": "1"}},
        lambda pod: (
            worker(pod)["resources"]
            == {
                "requests": {"cpu": "3", "example.com/fpga": "1"},
                "limits": {"memory": "5Gi", "example.com/fpga": "1"},
            }
        ),
    ),
    "image": ("mine:2", lambda pod: worker(pod)["image"] == "mine:2"),
    "env": (
        [{"name": "A", "value": "$(RLJOB_NAME)"}, SECRET],
        lambda pod: worker(pod)["env"][-2:] == [{"name": "A", "value": "$(RLJOB_NAME)"}, SECRET],
    ),
    "nodeSelector": ({"disk": "ssd"}, lambda pod: pod["spec"]["nodeSelector"] == {"disk": "ssd"}),
    "tolerations": (
        [{"key": "team", "operator": "Exists"}],
        lambda pod: {"key": "team", "operator": "Exists"} in pod["spec"]["tolerations"],
    ),
    "podTemplate": (
        {
            "metadata": {"annotations": {"a": "b"}, "labels": {names.SCRAPE_LABEL: "false"}},
            "spec": {**PLAIN, "volumes": [SCRATCH], "containers": [{"name": "worker", "volumeMounts": [MOUNT]}]},
        },
        lambda pod: (
            (pod["metadata"]["annotations"]["a"], pod["metadata"]["labels"][names.SCRAPE_LABEL]) == ("b", "false")
            and {name: pod["spec"][name] for name in PLAIN} == PLAIN
            and SCRATCH in pod["spec"]["volumes"]
            and MOUNT in worker(pod)["volumeMounts"]
        ),
    ),
}


def test_every_field_has_a_row() -> None:
    assert set(ROWS) == {field.alias or name for name, field in RoleSpec.model_fields.items()}


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("field", ROWS)
def test_a_field_reaches_the_pod(field: str, role: Role) -> None:
    value, holds = ROWS[field]
    member = MEMBERS[role]
    # Without the operator's own wishes, an empty part of the pod is one that the manifest has left empty.
    settings = Settings(image="rl:1", keep_off_gpu_nodes="None")
    assert holds(pod_of(with_section(role, **{field: value}), member, settings))
    for other, name in MEMBERS.items():
        if other is not role:
            without = pod_of(with_section(role), name, settings)
            assert pod_of(with_section(role, **{field: value}), name, settings) == without, f"{other} has its own"
