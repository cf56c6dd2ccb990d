"""The files that a role's container sees: its run folder, the job, its keys, shared memory, and what its user mounts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from posixpath import dirname, normpath
from typing import Any, Final

from rljob.api import RLJob
from rljob.api.lifecycle import VolumeClaim
from rljob.archive import ENTRY

from rljob_operator.core.member import LEADERS, Role
from rljob_operator.kube.render import names
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.roles import has_own_redis, users_pod_spec
from rljob_operator.kube.render.settings import Settings

RUN: Final = "rljob-run"
REDIS_SOCKET: Final = "rljob-redis-socket"
REDIS_DATA: Final = "rljob-redis-data"

_TMP, _SHM = "/tmp", "/dev/shm"
_LEAST_SHARED_MIB: Final = 64
"""What a container has of /dev/shm anyway."""
_SHARED_MIB_EACH: Final = 4
"""For the observations of an environment that has a process of its own: a raw Atari frame takes 0.1 MiB, one in HD 3."""
_SECRET_MODE: Final = 0o440
_WITH_THE_POD: Final = frozenset({"emptyDir", "ephemeral"})
"""Sources of volumes that end with their pod."""


@dataclass(frozen=True, slots=True)
class Mounted:
    """A volume of the pod, and where the role's container sees it."""

    volume: dict[str, Any]
    path: str
    read_only: bool = False
    sub_path: str = ""

    @property
    def mount(self) -> dict[str, Any]:
        """The entry of the container."""
        return {
            "name": self.volume["name"],
            "mountPath": self.path,
            **({"readOnly": True} if self.read_only else {}),
            **({"subPath": self.sub_path} if self.sub_path else {}),
        }


def mounted(job: RLJob, member: str, settings: Settings) -> tuple[Mounted, ...]:
    """The operator's own volumes of a member's container; of those that are room to write in, where its user mounts no other."""
    role, name = Role.of(member), job.metadata.name
    claim = checkpoint_claim(job, settings) if member in LEADERS else None
    if claim is not None:
        run = Mounted(_claim(RUN, claim.claim_name), names.RUN_DIR, sub_path=claim.sub_path)
    else:
        run = Mounted({"name": RUN, "emptyDir": {}}, names.RUN_DIR)
    room = (
        run,
        Mounted({"name": "rljob-tmp", "emptyDir": {}}, _TMP),
        Mounted(
            {"name": "rljob-shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{shared_memory_mib(job, role)}Mi"}},
            _SHM,
        ),
    )
    found = [
        *(each for each in room if _users_mount(job, role, each.path) is None),
        Mounted({"name": "rljob-job", "configMap": {"name": names.config_map(name)}}, names.JOB_DIR, read_only=True),
    ]
    if job.spec.code is not None:  # optional: what is missing is said by the role, and not by an event of its pod alone
        items = [{"key": ENTRY, "path": names.code_file(job)}]
        volume = {"name": job.spec.code.config_map, "items": items, "optional": True}
        found.append(Mounted({"name": "rljob-code", "configMap": volume}, names.CODE_DIR, read_only=True))
    if run.sub_path and names.EXPERIMENT_LABEL in job.metadata.labels:
        found.append(replace(run, path=names.RUNS_DIR, sub_path=dirname(run.sub_path)))
    keys = {names.TOKEN_FILE: names.TOKEN_FILE} if role is Role.LEARNER else {}
    if job.spec.network.encryption == "Curve":
        keys[names.keys_entry(role)] = names.KEYS_FILE
    if keys:
        secret = names.actor_secret(name) if role is Role.ACTOR else names.core_secret(name)
        found.append(_keys(secret, keys, settings))
    if role is Role.REPLAY and has_own_redis(job):
        found.append(Mounted({"name": REDIS_SOCKET, "emptyDir": {"medium": "Memory"}}, names.REDIS_SOCKET_DIR))
    return tuple(found)


def pod_volumes(owned: Owned, member: str, settings: Settings) -> list[dict[str, Any]]:
    """The operator's own volumes of a member's pod: those of `mounted`, and the one that its Redis alone sees."""
    job, role = owned.job, Role.of(member)
    found = list({each.volume["name"]: each.volume for each in mounted(job, member, settings)}.values())
    if role is Role.REPLAY and has_own_redis(job):
        found.append(_claim(REDIS_DATA, owned.claim(member)))
    return found


def mounts(job: RLJob, member: str, settings: Settings) -> list[dict[str, Any]]:
    """Where the role's container sees them, and what podTemplate mounts in the place of one, for containers beside it."""
    given = (_users_mount(job, Role.of(member), path) for path in (names.RUN_DIR, _TMP, _SHM))
    return [*(each.mount for each in mounted(job, member, settings)), *(each for each in given if each is not None)]


def shared_memory_mib(job: RLJob, role: Role) -> int:
    """Size of /dev/shm: where environments may have processes of their own, their observations pass through it. It counts as
    the container's memory only as far as it is used."""
    environments = {Role.ACTOR: job.spec.actors.envs_per_actor, Role.EVALUATOR: job.spec.evaluator.resources.cores()}
    return _LEAST_SHARED_MIB + _SHARED_MIB_EACH * environments.get(role, 0)


def makes_checkpoint_claim(job: RLJob, settings: Settings) -> bool:
    """Whether the operator makes the volume claim for the job's checkpoints: where the manifest names no place for them."""
    named = job.spec.checkpoint.storage or _users_mount(job, Role.LEARNER, names.RUN_DIR)
    return not named and bool(settings.checkpoint_size)


def checkpoints_are(job: RLJob, settings: Settings) -> str:
    """Where the job's checkpoints outlive the learner's pod, in words; empty where they end with it."""
    storage, own = job.spec.checkpoint.storage, _users_mount(job, Role.LEARNER, names.RUN_DIR)
    if storage is not None and storage.object_store is not None:
        return f"in {storage.object_store.url}"
    claim = checkpoint_claim(job, settings)
    if claim is not None:
        return f"on claim {claim.claim_name}"
    return f"in volume {own.get('name')}" if own is not None and not _source(job, own).keys() & _WITH_THE_POD else ""


def checkpoint_claim(job: RLJob, settings: Settings) -> VolumeClaim | None:
    """The claim that the learner's run folder is on, of its user's or made for it; None where it is on none."""
    storage, own = job.spec.checkpoint.storage, _users_mount(job, Role.LEARNER, names.RUN_DIR)
    if own is not None:
        claim, inside = _source(job, own).get("persistentVolumeClaim") or {}, own.get("subPath", "")
        return (
            VolumeClaim.model_construct(claim_name=claim["claimName"], sub_path=inside)
            if "claimName" in claim
            else None
        )
    if storage is not None:
        return storage.persistent_volume_claim
    return VolumeClaim(claim_name=names.claim(job.metadata.name, "learner")) if settings.checkpoint_size else None


def _users_mount(job: RLJob, role: Role, path: str) -> dict[str, Any] | None:
    """What podTemplate mounts at ``path`` of the role's container; it wins over what the operator would mount there."""
    worker = _entry(users_pod_spec(job, role).get("containers"), "name", names.WORKER)
    return _entry(worker.get("volumeMounts"), "mountPath", path) or None


def _source(job: RLJob, mount: dict[str, Any]) -> dict[str, Any]:
    """The volume that the learner mounts so, as its podTemplate has it; empty where it has none of that name."""
    return _entry(users_pod_spec(job, Role.LEARNER).get("volumes"), "name", str(mount.get("name")))


def _entry(entries: Any, key: str, value: str) -> dict[str, Any]:
    """The entry of a podTemplate's list with this name or path; empty where there is none, or where it is to be deleted."""
    known = (each for each in entries if isinstance(each, dict)) if isinstance(entries, list) else ()
    return next((e for e in known if normpath(str(e.get(key, ""))) == value and "$patch" not in e), {})


def _claim(volume: str, name: str) -> dict[str, Any]:
    return {"name": volume, "persistentVolumeClaim": {"claimName": name}}


def _keys(secret: str, items: Mapping[str, str], settings: Settings) -> Mounted:
    """The entries of a Secret that a role may see, as files: readable by the containers' group, which the volume belongs to;
    without such a group by every user in the container."""
    mode = {"defaultMode": _SECRET_MODE} if settings.run_as_user is not None else {}
    entries = [{"key": entry, "path": file} for entry, file in items.items()]
    volume = {"name": "rljob-keys", "secret": {"secretName": secret, "items": entries, **mode}}
    return Mounted(volume, names.KEYS_DIR, read_only=True)
