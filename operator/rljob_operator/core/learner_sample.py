"""From the learner's `/status` to a `LearnerSample`: every figure is checked, and what is wrong is missing, never zero.

Both substrates use these functions, whatever way the document came.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from rljob_operator.core.observed import Evaluation, LearnerSample

_LARGEST = 1e15
"""Beyond any run; a larger count is garbage."""
_LONGEST_TEXT = 2000
"""Characters; a condition's message may have more, but nobody reads them."""


class BadSample(ValueError):
    """The document is no learner's status; ``str()`` says why."""


def status_document(content: bytes | str) -> dict[str, Any]:
    """A member's status out of its answer. Raises BadSample where it is no JSON object."""
    try:
        document = json.loads(content, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise BadSample("its status is no JSON") from None
    if not isinstance(document, dict):
        raise BadSample("its status is no JSON object")
    return document


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def parse_sample(document: Mapping[str, Any], taken_seconds: float) -> LearnerSample:
    """Read a status document that was fetched at ``taken_seconds``.

    A figure that is absent, not finite or out of its range becomes None. Raises BadSample where it has no believable
    ``updates``, without which nothing can be judged.
    """
    updates = _count(document, "updates")
    if updates is None:
        raise BadSample("its status has no count of updates")
    return LearnerSample(
        taken_seconds=taken_seconds,
        updates=updates,
        raw_frames_total=_count(document, "raw_frames_total"),
        mean_return=_number(document, "mean_return", low=-_LARGEST),
        evaluations=_evaluations(document.get("evaluations")),
        wait_fraction=_number(document, "learner_wait_fraction", high=1.0),
        blocked_fraction=_number(document, "actors_blocked_fraction", high=1.0),
        consumption_per_second=_number(document, "consumption_per_second"),
        production_per_second=_number(document, "production_per_second"),
        depth_batches=_number(document, "queue_depth_batches"),
        bound_batches=_number(document, "queue_bound_batches"),
        batch_size=_count(document, "batch_size"),
        policy_lag_updates_p95=_number(document, "policy_lag_updates_p95"),
        lag_limit_updates=_number(document, "lag_limit_updates"),
        standstill=_text(document, "standstill"),
        stands_still=document.get("state") == "Evaluating",
        given_up=_text(document, "given_up"),
        epoch=_count(document, "epoch") or 0,
        lags=_lags(document.get("actors")),
        document=document,
    )


def _number(document: Mapping[str, Any], name: str, *, low: float = 0.0, high: float = _LARGEST) -> float | None:
    number = _finite(document.get(name))
    return None if number is None or not low <= number <= high else number


def _text(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    return value[:_LONGEST_TEXT] if isinstance(value, str) else ""


def _count(document: Mapping[str, Any], name: str) -> int | None:
    number = _number(document, name)
    return None if number is None else int(number)


def _finite(value: Any) -> float | None:
    """A plain finite number as a float; None for anything else, also for an integer that no float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _evaluations(found: Any) -> tuple[Evaluation, ...]:
    """Those that have a mean."""
    verdicts = []
    for each in found if isinstance(found, list) else ():
        mean = _finite(each.get("mean")) if isinstance(each, dict) else None
        if mean is None:
            continue
        error, episodes, version = (_finite(each.get(name)) for name in ("standard_error", "episodes", "version"))
        finished, seed = bool(each.get("finished", True)), _finite(each.get("seed"))
        verdicts.append(
            Evaluation(
                mean,
                error or 0.0,
                int(episodes or 0),
                finished,
                max(0, int(version or 0)),
                None if seed is None else int(seed),
            )
        )
    return tuple(verdicts)


def _lags(found: Any) -> dict[str, float]:
    """How many published versions each actor's weights are behind the freshest actor's."""
    if not isinstance(found, list):
        return {}
    versions = {
        str(actor.get("name", "")): version
        for actor in found
        if isinstance(actor, dict) and (version := _finite(actor.get("policy_version"))) is not None
    }
    newest = max(versions.values(), default=0.0)
    return {name: newest - version for name, version in versions.items()}
