"""What a manifest mounts where the operator gives room to write in wins over it, and is where the checkpoints are then."""

from __future__ import annotations

from typing import Any

import pytest
from rljob_operator.core.member import Role
from rljob_operator.kube.render import names
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.volumes import checkpoints_are
from rljob_operator.kube.view.policy import reader

from .rendered import MEMBERS, SETTINGS, names_of, pod_of, with_section, worker


def mounting(role: Role, path: str, **source: Any) -> Owned:
    mount = {"name": "mine", "mountPath": path, "subPath": "a"}
    return with_section(role, volumes=[{"name": "mine", **source}], volumeMounts=[mount])


@pytest.mark.parametrize("path", ["/dev/shm", "/tmp", "/tmp/", names.RUN_DIR])
@pytest.mark.parametrize("role", Role)
def test_a_users_mount_wins(role: Role, path: str) -> None:
    pod = pod_of(mounting(role, path, emptyDir={}), MEMBERS[role])
    places = [(each["mountPath"].rstrip("/"), each["name"]) for each in worker(pod)["volumeMounts"]]
    assert (path.rstrip("/"), "mine") in places
    assert len({place for place, _ in places}) == len(places), "an API server refuses a second one"
    assert {name for _, name in places} <= {each["name"] for each in pod["spec"]["volumes"]}


def test_what_the_pod_depends_on_is_not_given_way() -> None:
    places = [
        each["mountPath"] for each in worker(pod_of(mounting(Role.ACTOR, names.JOB_DIR), "actor-0"))["volumeMounts"]
    ]
    assert places.count(names.JOB_DIR) == 2, "the API server says that it must be unique"


@pytest.mark.parametrize(
    ("source", "where"),
    [
        ({"persistentVolumeClaim": {"claimName": "big"}}, "on claim big"),
        ({"nfs": {"server": "a", "path": "/b"}}, "in volume mine"),
        ({"emptyDir": {}}, ""),
    ],
)
def test_checkpoints_are_where_the_learners_run_folder_is(source: dict[str, Any], where: str) -> None:
    job = mounting(Role.LEARNER, names.RUN_DIR, **source)
    assert checkpoints_are(job.job, SETTINGS) == where
    assert f"PersistentVolumeClaim/{names.claim(job.name, 'learner')}" not in names_of(job), "no pod would mount it"
    made = reader(job, SETTINGS, 10.0)["spec"]
    assert made["volumes"] == [{"name": "mine", **source}]
    assert made["containers"][0]["volumeMounts"] == [
        {"name": "mine", "mountPath": names.RUN_DIR, "subPath": "a", "readOnly": True}
    ]
