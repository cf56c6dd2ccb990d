"""The names of all that a job has on a cluster: objects, labels, annotations, ports and places in a container; and how to write
into a mapping that a user may have filled."""

from typing import Any, Final

from rljob.api import RLJob
from rljob.api.job import DATA_PORTS as PORT_NUMBERS

from rljob_operator.core.member import Role

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "rljob"
SELECTOR: Final = f"{MANAGED_BY}={MANAGER}"
"""The label selector of everything that the operator makes."""

OURS: Final = "rljob.dev/"
"""How the names of the operator's own labels and annotations begin."""
JOB_LABEL: Final = f"{OURS}job"
ROLE_LABEL: Final = "rljob.dev/role"
MEMBER_LABEL: Final = "rljob.dev/member"
LOG_OF_LABEL: Final = "rljob.dev/log-of"
"""On the pod that removes the log of a job's shard: the job's name. It is none of the job's own pods."""
REACHABLE_LABEL: Final = "rljob.dev/reachable"
"""The Service selects pods that have it. It is taken from a pod whose node is lost before its member starts anew: such a pod
stays Terminating for as long as its node is away, and its address would stand in the member's name beside the new one."""

EXPERIMENT_LABEL: Final = "rljob.dev/experiment"
"""On the runs of an experiment, its journal and the pods that judge: its name. Runs have the number of their trial and their
seed, too."""
TRIAL_LABEL: Final = "rljob.dev/trial"
SEED_LABEL: Final = "rljob.dev/seed"

SCRAPE_LABEL: Final = "rljob.dev/scrape"
"""``false`` on pods that the chart's PodMonitor passes over; a podTemplate sets it."""

ASKED_ANNOTATION: Final = "rljob.dev/asked"
"""On a pod: when the controller asked it to end (RFC 3339)."""
REVISION_ANNOTATION: Final = "rljob.dev/revision"
"""On a pod: `rendering.revision` of what it was made from."""
WRITTEN_ANNOTATION: Final = "rljob.dev/written"
"""Of the ConfigMap: digest of what the job's user had written (`DesiredState.written`) when it was made."""
EXTERNAL_LOG_ANNOTATION: Final = "rljob.dev/external-log"
"""On a replay shard's pod: it has its log in a Redis that others use, too, from which it is to be removed in the end."""

INGEST_PORT, SAMPLE_PORT, WEIGHTS_PORT, NOTICE_PORT, INFERENCE_PORT, MEETING_PORT = PORT_NUMBERS
DATA_PORTS: Final = {
    "ingest": INGEST_PORT,
    "sample": SAMPLE_PORT,
    "weights": WEIGHTS_PORT,
    "notice": NOTICE_PORT,
    "inference": INFERENCE_PORT,
}
"""Name of a port -> its number. The port of the metrics is ``spec.monitoring.metricsPort``."""
METRICS: Final = "metrics"
"""Name of the port of /metrics, /healthz, /readyz and /status."""

WORKER: Final = "worker"
"""The container that runs the role."""
REDIS: Final = "redis"
"""The sidecar of a replay shard."""

RUN_DIR: Final = "/var/lib/rljob"
RUNS_DIR: Final = "/var/lib/rljob-runs"
"""Where a run of an experiment sees the folders of all its runs, which are on one claim."""
JOB_FILE: Final = "job.yaml"
JOB_DIR: Final = "/etc/rljob/job"
CODE_DIR: Final = "/etc/rljob/code"
KEYS_FILE: Final = "keys.json"
KEYS_DIR: Final = "/etc/rljob/keys"
"""A member's own keys, and of the learner the token beside them."""
TOKEN_FILE: Final = "token"
TERMINATION_LOG: Final = "/dev/termination-log"
REDIS_SOCKET_DIR: Final = "/run/rljob"
REDIS_SOCKET: Final = f"{REDIS_SOCKET_DIR}/redis.sock"
REDIS_DATA_DIR: Final = "/var/lib/redis"


def labels(job: str) -> dict[str, str]:
    """The labels of everything that belongs to a job."""
    return {MANAGED_BY: MANAGER, JOB_LABEL: job}


def role_labels(job: str, role: Role) -> dict[str, str]:
    """What selects the pods of a role."""
    return {**labels(job), ROLE_LABEL: str(role)}


def member_labels(job: str, member: str) -> dict[str, str]:
    """The labels of a member's pod, for as long as it has its member's address."""
    return {**role_labels(job, Role.of(member)), MEMBER_LABEL: member, REACHABLE_LABEL: "true"}


def selector(wanted: dict[str, str]) -> str:
    """Labels as a label selector."""
    return ",".join(f"{label}={value}" for label, value in wanted.items())


def pod(job: str, member: str, suffix: str) -> str:
    """A pod's name; ``suffix`` tells it from the pods that it follows on."""
    return f"{job}-{member}-{suffix}"


def judge(run: str, rung: int, attempt: int) -> str:
    """The pod that judges a run at a rung."""
    return f"{run}-judge-{rung}-{attempt}"


def journal(experiment: str, number: int) -> str:
    """The ConfigMap with a part of an experiment's journal."""
    return f"{experiment}-journal-{number}"


def history(name: str) -> str:
    """The ConfigMap with the notes of all jobs of one name, or of one experiment, that outlives them."""
    return f"{name}-rljob-history"


def service(job: str) -> str:
    """The headless Service, and the subdomain of every pod."""
    return job


def network_policy(job: str) -> str:
    """The NetworkPolicy."""
    return job


def learners_policy(job: str) -> str:
    """The NetworkPolicy of the pods of a learner of several processes."""
    return f"{job}-learners"


def config_map(job: str) -> str:
    """The ConfigMap with the job in force."""
    return f"{job}-job"


def code(job: str, digest: str) -> str:
    """The ConfigMap with what the job takes along of its user's own files, by the sha256 of that in hex."""
    return f"{job}-code-{digest[:12]}"


def code_file(job: RLJob) -> str:
    """The name in `CODE_DIR` of the archive that the job's roles take; empty where it takes none."""
    return f"{job.spec.code.digest.removeprefix('sha256:')}.tar.gz" if job.spec.code is not None else ""


def core_secret(job: str) -> str:
    """The Secret with the CURVE keys of every role, each pod seeing its own, and the token that requests to the learner need."""
    return f"{job}-keys-core"


def actor_secret(job: str) -> str:
    """The Secret with the actors' keys alone: a kubelet may read a whole Secret of its pods, and actors run on spot nodes."""
    return f"{job}-keys-actors"


def keys_entry(role: Role) -> str:
    """A role's keys in these Secrets."""
    return f"{role}.json"


def claim(job: str, member: str) -> str:
    """The PersistentVolumeClaim of a member: ``learner``, ``replay-0``."""
    return f"{job}-{member}"


def host(job: RLJob, member: str, cluster_domain: str = "") -> str:
    """The name of whichever pod is ``member`` now. Without a domain the resolver of the pod completes it."""
    name = f"{member}.{service(job.metadata.name)}.{job.metadata.namespace}.svc"
    return f"{name}.{cluster_domain}" if cluster_domain else name


def shards(job: RLJob) -> list[str]:
    """The replay shards of a job; none where its learner keeps the queue itself."""
    return [f"replay-{k}" for k in range(job.spec.replay.shards)] if job.spec.replay is not None else []


def inference_servers(job: RLJob) -> list[str]:
    """The inference servers that are pods of their own."""
    count = job.spec.inference.replicas if job.spec.actors.inference == "Central" else 0
    return [f"inference-{k}" for k in range(count)]


def first_members(job: RLJob) -> list[str]:
    """The members that a job starts with, in the order in which they start."""
    actors = [f"actor-{k}" for k in range(job.spec.requested_actors)]
    evaluator = ["evaluator"] if job.spec.evaluator.enabled else []
    return [*shards(job), *job.spec.learner.members, *inference_servers(job), *actors, *evaluator]


class PodProblem(ValueError):
    """A role's fields contradict what the operator needs of its pods; ``str()`` says where and why."""


def at(mapping: dict[str, Any], name: str, empty: Any) -> Any:
    """The list or mapping at ``name``, put there where there is nothing; one apart from ``mapping`` where there is something
    else."""
    if mapping.get(name) is None:
        mapping[name] = empty
    return mapping[name] if isinstance(mapping[name], type(empty)) else empty
