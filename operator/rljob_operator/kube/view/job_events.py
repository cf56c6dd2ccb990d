"""The events of a job out of all of its namespace: of the RLJob, its pods and its volume claims. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rljob.api.timestamps import parse_rfc3339

from rljob_operator.core.member import Role
from rljob_operator.kube.apiserver.resources import PODS, RLJOBS, VOLUME_CLAIMS
from rljob_operator.view.events import EventView

_MEMBER = rf"(?:{'|'.join(Role)})(?:-[0-9]+)?"


def events_of(job: str, events: Iterable[Mapping[str, Any]]) -> list[EventView]:
    """Those of the job, the oldest first. Objects that are gone are known by their names."""
    pod, claim = re.compile(rf"{re.escape(job)}-{_MEMBER}-[a-z0-9]{{5}}"), re.compile(rf"{re.escape(job)}-{_MEMBER}")

    def concerns(about: Mapping[str, Any]) -> bool:
        kind, name = about.get("kind"), str(about.get("name", ""))
        return (
            (kind == RLJOBS.kind and name == job)
            or (kind == PODS.kind and pod.fullmatch(name) is not None)
            or (kind == VOLUME_CLAIMS.kind and claim.fullmatch(name) is not None)
        )

    found = [_view(event) for event in events if concerns(event.get("regarding") or {})]
    return sorted(found, key=lambda event: event.time_seconds)


def _view(event: Mapping[str, Any]) -> EventView:
    about, series = event["regarding"], event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("deprecatedLastTimestamp"), event.get("eventTime"))
    seen = next((time for time in times if time), event["metadata"]["creationTimestamp"])
    return EventView(
        time_seconds=parse_rfc3339(seen),
        kind=str(event.get("type", "")),
        reason=str(event.get("reason", "")),
        about=f"{about['kind']}/{about['name']}",
        note=str(event.get("note", "")),
        count=int(series.get("count") or event.get("deprecatedCount") or 1),
    )
