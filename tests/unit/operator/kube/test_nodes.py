"""What is kept of nodes, and when a change is told."""

from typing import Any

import pytest
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.kube.apiserver.resources import NODES
from rljob_operator.kube.job.observe import seen
from rljob_operator.kube.watch.kept import NodeCache
from rljob_operator.polls.poll import Silence


def node(name: str = "cpu-1", ready: str = "True", **spec: Any) -> dict[str, Any]:
    about = {"name": name, "resourceVersion": "3", "labels": {"a": "b"}}
    return {"metadata": about, "spec": spec, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


class Watched:
    """A cache and whom it has told of."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.cache = NodeCache(self.told.append)

    def change(self, document: dict[str, Any], kind: str = "MODIFIED") -> bool:
        self.cache.change(kind, self.cache.keep(document))
        return self.cache.lost(document["metadata"]["name"])


@pytest.mark.parametrize(("ready", "lost"), [("True", False), ("False", False), ("Unknown", True)])
def test_a_node_is_lost_when_its_kubelet_is_not_heard_of(ready: str, lost: bool) -> None:
    watched = Watched()
    assert watched.change(node(ready=ready)) == watched.change(node(ready=ready)) == lost
    assert watched.told == ["cpu-1"] * lost


def test_a_cordon_alone_is_nothing_to_tell_of() -> None:
    watched = Watched()
    assert not watched.change(node(unschedulable=True, taints=[{"key": "node.kubernetes.io/unschedulable"}]))
    assert watched.told == []


def test_what_a_list_no_longer_has_and_what_is_deleted_is_forgotten() -> None:
    watched = Watched()
    watched.change(node("a", "Unknown"))
    watched.change(node("b", "Unknown"))
    watched.cache.replace(None, [watched.cache.keep(node("b", "Unknown"))])
    assert (watched.cache.lost("a"), watched.cache.lost("b")) == (False, True)
    assert not watched.change(node("b", "Unknown"), "DELETED")
    assert watched.told == ["a", "b", "a", "b"]


def test_nodes_have_no_namespace() -> None:
    assert NODES.path(None) == "/api/v1/nodes"


def test_a_member_is_seen_with_its_node_and_its_silence() -> None:
    up = Member("replay-0", Role.REPLAY, Phase.READY, 10.0, ready_seconds=50.0, node_name="cpu-1")
    assert seen(up, 100.0, False, None) is up
    silent = seen(up, 100.0, True, Silence(40.0, "does not answer"))
    assert (silent.silent_seconds, silent.silent_because, silent.node_lost) == (50.0, "does not answer", True)
    ended = Member("replay-0", Role.REPLAY, Phase.EXITED, 10.0, node_name="cpu-1")
    assert seen(ended, 100.0, True, Silence(40.0, "does not answer")) is ended
