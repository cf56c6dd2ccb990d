"""What the intake makes of the events that kopf tells, and of a list that kopf's view is compared with."""

from typing import Any

from kubernetes.aio.client.configuration import Configuration
from rljob_operator.kube.apiserver.access import Access
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.watch.intake import Intake


def job(
    name: str = "pong", uid: str = "u-1", version: str = "1", status: Any = None, **metadata: Any
) -> dict[str, Any]:
    about = {"namespace": "team", "name": name, "uid": uid, "resourceVersion": version, **metadata}
    return {"metadata": about, "spec": {"suspend": False}, **({"status": status} if status else {})}


class Seen:
    """An intake that the test alone feeds, and that knows these jobs."""

    def __init__(self, *jobs: dict[str, Any]) -> None:
        self.enqueued: list[str] = []
        access = Access(Configuration(host="http://127.0.0.1:1"), "default", None, None)
        self.intake = Intake(access, Client(access), None, lambda namespace, name: self.enqueued.append(name))
        for each in jobs:
            self.intake.change(None, each)

    def heard(self) -> list[str]:
        enqueued, self.enqueued = self.enqueued, []
        return enqueued

    def compare(self, *found: dict[str, Any], meanwhile: Any = lambda: None) -> None:
        known = dict(self.intake._jobs)
        meanwhile()
        self.intake.compare(known, {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in found})


async def test_each_job_that_comes_changes_and_goes_is_enqueued() -> None:
    it = Seen(job())
    it.intake.change("ADDED", job("cartpole", "u-2"))
    it.intake.change("MODIFIED", {**job(version="2"), "spec": {"suspend": True}})
    it.intake.change("MODIFIED", {**job(version="3", deletionTimestamp="now"), "spec": {"suspend": True}})
    it.intake.change("DELETED", job(version="4"))
    assert it.heard() == ["pong", "cartpole", "pong", "pong", "pong"]
    assert (it.intake.get("team", "pong"), it.intake.known(), len(it.intake)) == (None, (("team", "cartpole"),), 1)


async def test_what_the_controller_writes_itself_wants_no_look_but_is_known() -> None:
    it = Seen(job())
    it.intake.change("MODIFIED", job(version="2", status={"observedGeneration": 1}))
    assert (it.heard(), it.intake.get("team", "pong")["status"]) == (["pong"], {"observedGeneration": 1})
    it.intake.change("MODIFIED", job(version="3", annotations={"rljob.dev/checkpoint": "now"}))
    assert it.heard() == ["pong"]


async def test_the_late_end_of_a_job_does_not_take_its_successor_away() -> None:
    """kopf tells the events of one object in order, but not those of two that have had the same name."""
    it = Seen()
    for uid in ("old", "new"):
        it.intake.change("ADDED", job(uid=uid))
    it.heard()
    it.intake.change("DELETED", job(uid="old"))
    assert (it.heard(), it.intake.get("team", "pong")) == ([], job(uid="new"))


async def test_it_is_synced_when_everything_listed_is_known() -> None:
    it = Seen()
    it.compare(job(), job("cartpole", "u-2"))
    it.intake.change(None, job())
    it.compare(job(), job("cartpole", "u-2"))
    assert not it.intake.synced.is_set()
    it.intake.change(None, job("cartpole", "u-2"))
    it.compare(job(), job("cartpole", "u-2"))
    assert it.intake.synced.is_set()
    empty = Seen()
    empty.compare()
    assert empty.intake.synced.is_set()


async def test_a_job_whose_end_was_missed_is_found_gone() -> None:
    it = Seen(job(), job("cartpole", "u-2"))
    it.heard()
    it.compare(job())
    assert (it.heard(), it.intake.known()) == (["cartpole"], (("team", "pong"),))
    it.compare(job(uid="another"))
    assert (it.heard(), it.intake.known()) == (["pong"], ())


async def test_a_job_that_came_during_the_list_stays() -> None:
    it = Seen()
    it.compare(meanwhile=lambda: it.intake.change("ADDED", job()))
    assert (it.heard(), it.intake.known()) == (["pong"], (("team", "pong"),))


async def test_a_watch_that_does_not_tell_what_two_lists_show_begins_anew() -> None:
    it, begun = Seen(job()), []
    it.intake._watch.start_anew = lambda: begun.append(1)  # type: ignore[method-assign]
    it.compare(job())
    for version in ("2", "3"):  # told before the next list, if late
        it.compare(job(version=version))
        it.intake.change("MODIFIED", job(version=version))
        it.compare(job(version=version))
    assert not begun
    it.compare(job(version="3"), job("new", "u-2"))
    assert not begun
    it.compare(job(version="3"), job("new", "u-2"))
    assert begun == [1]
