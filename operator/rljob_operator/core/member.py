"""A member of a job: one process or pod, whichever substrate it runs on, as last seen."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from rljob.api.conditions import Reason
from rljob.api.roles import Role as Role

T = TypeVar("T")

LEADERS: Final = ("learner", "learner-0")
"""Names of the learner, or of the first of its processes, which speaks for all."""


def leader(by_name: Mapping[str, T]) -> T | None:
    """That of the learner, by the members' names."""
    return next((by_name[name] for name in LEADERS if name in by_name), None)


def number(name: str) -> int:
    """``actor-7`` -> 7; a member without a number is 0."""
    digits = name.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


class Phase(StrEnum):
    """Where one member (a process, a pod) is in its life."""

    ABSENT = "Absent"
    STARTING = "Starting"
    READY = "Ready"
    DRAINING = "Draining"
    EXITED = "Exited"


@dataclass(frozen=True, slots=True)
class Member:
    """One named process or pod of a job as last seen. Names are ``replay-0``, ``learner``, ``actor-7``, ``evaluator``.

    Attributes:
        since_seconds: when it entered ``phase``; for EXITED the time of its end.
        incarnation: tells one life of the member from the next, and from those of all others (a pod's uid).
        ready_seconds: when this life became ready; None where it never did.
        exit_code: of an EXITED member; negative for a signal, as subprocess gives it, or 128 + n, as Kubernetes does.
        asked: the end was asked for by the controller (a drain), so it is no failure whatever the code.
        last_words: last line(s) of the log of an EXITED member.
        disrupted: why the surroundings took the member away (a node's drain, a spot notice, eviction); empty otherwise.
        pod_conditions: (type, status) of its pod's conditions, for failurePolicy's onPodConditions.
        waiting: why a STARTING member does not come up (UNSCHEDULABLE, IMAGE_PULL_FAILED), or why one that should start can't be
            made (QUOTA_EXCEEDED, POD_TEMPLATE_REJECTED and the like); None where it simply starts, or no reason is known.
        waiting_message: the same as a message of the scheduler, the kubelet or the API server.
        held: it is not to be started now: it was refused, and is tried again later.
        placed: whether there is a place for it to run, on a cluster a node.
        leaving_node: it is about to be taken away; it is among the first to be drained.
        unready_seconds: since when Kubernetes has called the pod of a READY member not ready, for a container beside its own
            or because the role does not do its work yet; None where it is ready. ``waiting_message`` says why.
        node_lost: its node is not heard of by the cluster; whether it still works is not known from there.
        silent_seconds: for how long a READY member has not answered as it should, or a STARTING one has not announced itself, in
            time in which it was listened to; 0 where it answers. ``silent_because`` says how it fails to.
        hung: of an EXITED member, that it was ended because it did not answer.
        deleted: the controller or another client has asked for the removal of what remains of it.
        pod_name, node_name: for the status.
    """

    name: str
    role: Role
    phase: Phase = Phase.ABSENT
    since_seconds: float = 0.0
    incarnation: str = ""
    ready_seconds: float | None = None
    exit_code: int | None = None
    asked: bool = False
    last_words: str = ""
    disrupted: str = ""
    pod_conditions: tuple[tuple[str, str], ...] = ()
    waiting: Reason | None = None
    waiting_message: str = ""
    held: bool = False
    placed: bool = True
    leaving_node: bool = False
    unready_seconds: float | None = None
    node_lost: bool = False
    silent_seconds: float = 0.0
    silent_because: str = ""
    hung: bool = False
    deleted: bool = False
    pod_name: str = ""
    node_name: str = ""

    @property
    def alive(self) -> bool:
        """Whether anything of it runs or is about to."""
        return self.phase in _ALIVE

    @property
    def failed(self) -> bool:
        """Whether it has ended without having been asked to."""
        return self.phase is Phase.EXITED and not self.asked


_ERROR = re.compile(r"([A-Za-z_]\w*\.)*[A-Z]\w*(Error|Exception|Exit|Interrupt)\b(: |$)")
_CRASH = re.compile(r"^Fatal Python error: (.+)(?:\n(?!Fatal).*?)*?\n +File (\".+)$", re.MULTILINE)
"""What Python's faulthandler writes of a crash in native code, down to the innermost line of Python."""
_LOGGED = re.compile(r"\d\d:\d\d:\d\d [A-Z]+ ")
"""How a line of a role's log begins."""
_ALIVE = frozenset({Phase.STARTING, Phase.READY, Phase.DRAINING})


def last_line(log: str) -> str:
    """The line at the end of a log that says why its program ended: rljob's own last line or that of a traceback, after which
    other threads may have written; the place of a crash; else the last line, with a word that it is only that."""
    lines = ["", *map(str.strip, log.strip().splitlines())]
    told = [line for line in lines if line.startswith("rljob: ")] or [line for line in lines if _ERROR.match(line)]
    told = told or [" at ".join(filter(None, crash)) for crash in _CRASH.findall(log)]
    if not told and _LOGGED.match(lines[-1]):
        return f"its log gives no reason; last line: {lines[-1]}"
    return (told or lines)[-1].removeprefix("rljob: ")
