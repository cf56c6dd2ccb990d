"""Statuses as small numbers: two that a controller could not tell apart, but for what only people read, are one.

The clock of every state stands at `NOW`. That time passes is that everything else becomes older, up to an age from which on
nothing changes any more.
"""

from typing import Any

from pydantic import BaseModel
from rljob.api.status import ProgressStatus, RLJobStatus

NOW = 1_700_000_000.0
OLDEST_SECONDS = 130.0
"""Longer than every wait of the small jobs; a member that is gone is forgotten later still, which is left out."""
_OLD = NOW - OLDEST_SECONDS
_WAITED_FROM = frozenset({"LearnerReady", "ReplayReady", "InferenceReady"})
"""Conditions from whose times something is waited for."""


class Statuses:
    """All statuses of one search, each once."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._found: list[RLJobStatus] = []
        self._older: dict[tuple[int, float], int] = {}
        self.new = self.number(RLJobStatus())

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, number: int) -> RLJobStatus:
        return self._found[number]

    def number(self, status: RLJobStatus) -> int:
        """The number of the status as it is at `NOW`."""
        plain = _plain(status)
        key = _frozen(plain)
        number = self._numbers.setdefault(key, len(self._found))
        if number == len(self._found):
            self._found.append(plain)
        return number

    def older(self, number: int, seconds: float) -> int:
        """The number of the same status so much later."""
        place = number, seconds
        if (found := self._older.get(place)) is None:
            found = self._older[place] = self.number(_aged(self._found[number], seconds))
        return found


def _plain(status: RLJobStatus) -> RLJobStatus:
    """The status without what only people read, and without how old things are that are only there or not."""
    memory, scaling = status.controller, status.autoscaling
    changes: dict[str, Any] = {
        "start_time": _there(status.start_time),
        "completion_time": _there(status.completion_time),
        "active_seconds": 0,
        "failures": [],
        "progress": ProgressStatus.model_construct(last_update_time=_capped(status.progress.last_update_time)),
        "learner": status.learner.model_copy(update={"node_name": "", "start_time": None}),
        "restarts": status.restarts.model_copy(update={"ignored": min(1, status.restarts.ignored)}),
        "autoscaling": scaling.model_copy(update={"last_scale_time": _there(scaling.last_scale_time)}),
        "conditions": [
            each
            if each.type in _WAITED_FROM or each.last_transition_time == _OLD
            else each.model_copy(update={"last_transition_time": _OLD})
            for each in status.conditions
        ],
        "controller": memory.model_copy(
            update={
                "curve": [],
                "spent_active_seconds": 0.0,
                "active_since": _there(memory.active_since),
                # It only ever grows, and nothing is decided from it but that it does.
                "learner_epoch": memory.learner_epoch % 3,
            }
        ),
    }
    return status.model_copy(update=changes)


def _there(moment: float | None) -> float | None:
    return None if moment is None else _OLD


def _capped(moment: float | None) -> float | None:
    return None if moment is None else max(moment, _OLD)


def _frozen(value: Any) -> Any:
    """A value that can be a key; models by their fields in order."""
    if isinstance(value, BaseModel):
        return tuple([each if each.__class__ in _SIMPLE else _frozen(each) for each in value.__dict__.values()])
    if isinstance(value, list):
        return tuple([_frozen(each) for each in value])
    if isinstance(value, dict):
        return tuple((name, _frozen(each)) for name, each in value.items())
    return value


_SIMPLE = frozenset({str, int, float, bool, type(None)})


def _aged(value: Any, seconds: float) -> Any:
    """The same with every time so much longer ago. A number beyond a thousand million is a time."""
    if isinstance(value, float):
        return max(value - seconds, _OLD) if value > 1e9 else value
    if isinstance(value, BaseModel):
        aged = {name: _aged(each, seconds) for name, each in value.__dict__.items()}
        changes = {name: each for name, each in aged.items() if each is not value.__dict__[name]}
        return value.model_copy(update=changes) if changes else value
    if isinstance(value, list):
        return [_aged(each, seconds) for each in value]
    return value
