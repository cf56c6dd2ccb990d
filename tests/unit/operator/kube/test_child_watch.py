"""Which children have gone, by events and by lists that come after a watch was cut."""

from __future__ import annotations

from typing import Any

from rljob_operator.kube.watch.child_watch import ChildrenOfOneKind


def child(name: str, job: str = "pong", namespace: str = "default") -> dict[str, Any]:
    owner = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "name": job, "uid": f"{job}-uid", "controller": True}
    about = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}-uid", "ownerReferences": [owner]}
    return {"metadata": about}


def test_what_goes_is_told_once_with_its_job() -> None:
    gone: list[tuple[tuple[str, str], str]] = []
    seen = ChildrenOfOneKind(lambda job, uid: gone.append((job, uid)))
    seen.replace(None, [seen.keep(child("a")), seen.keep(child("b", job="other"))])
    seen.change("MODIFIED", seen.keep(child("a")))
    assert gone == []
    for _ in range(2):
        seen.change("DELETED", seen.keep(child("a")))
    assert gone == [(("default", "pong"), "default-a-uid")]


def test_what_went_while_nobody_watched_is_told_by_the_next_list_of_its_namespace() -> None:
    gone: list[tuple[tuple[str, str], str]] = []
    seen = ChildrenOfOneKind(lambda job, uid: gone.append((job, uid)))
    seen.replace("one", [seen.keep(child("a", namespace="one")), seen.keep(child("b", namespace="one"))])
    seen.replace("two", [seen.keep(child("c", namespace="two"))])
    seen.replace("one", [seen.keep(child("b", namespace="one"))])
    assert gone == [(("one", "pong"), "one-a-uid")]
    seen.replace("two", [])
    assert gone[1:] == [(("two", "pong"), "two-c-uid")]
