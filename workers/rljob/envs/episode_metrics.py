"""What an environment reports of an episode that ends: the numbers in its ``info``, such as ``is_success``."""

import dataclasses
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from rljob.api.episode_metrics import LARGEST, MOST_NAMES, NAME_PATTERN
from rljob.api.lifecycle import TargetMetric
from rljob.envs.base import EpisodeRecord
from rljob.envs.restarting import FAILURE
from rljob.loading import shown

log = logging.getLogger(__name__)

EPISODE_METRICS: Final = "rljob_episode_metrics"
"""Key of the info of an episode's last step: the numbers that it reports, by name."""

# What Gymnasium, ALE and we ourselves put there.
_NOT_ITS_OWN: Final = frozenset({"TimeLimit.truncated", "lives", "frame_number", "episode_frame_number", FAILURE})
_left_out: list[object] = []
_too_many: list[str] = []


def reported(info: Any) -> dict[str, float]:
    """The finite numbers in the ``info`` of an episode's last step, by name, True as 1 and False as 0; an array or tensor of one
    element is one, too. One that has no name to be shown is left out, which the log says once in this process."""
    found: dict[str, float] = {}
    for name, value in info.items() if isinstance(info, dict) else ():
        one = hasattr(value, "item") and np.prod(getattr(value, "shape", 0)) == 1  # of numpy, torch or jax
        number = value.item() if one else value
        counts = isinstance(number, bool | int | float) and abs(number) <= LARGEST
        if counts and isinstance(name, str) and re.fullmatch(NAME_PATTERN, name):
            found |= {} if name in _NOT_ITS_OWN else {name: float(number)}
        elif counts and not _left_out:
            _left_out.append(name)
            log.warning(
                "info[%s] at an episode's end is not reported: its name has to be 1 to 64 printable ASCII characters that do not "
                "begin with '_'",
                shown(name),
            )
    return found


def kept(episodes: Sequence[Mapping[str, float]], waited_for: TargetMetric | None) -> list[dict[str, float]]:
    """The numbers of ``episodes`` that are reported, of 16 names at most: the one that the job waits for, and the first of the
    others in the order of the environment. The log says once in this process which are left out."""
    own = (name for episode in episodes for name in episode)
    # The first has its place where these episodes lack it, too.
    names = list(dict.fromkeys(own if waited_for is None else (waited_for.name, *own)))
    if len(names) > MOST_NAMES and not _too_many:
        _too_many.append(names[MOST_NAMES])
        log.warning(
            "of %d numbers in info at an episode's end %d are reported: that of successPolicy.metric, and those that come first; "
            "the first that is left out is %r",
            len(names),
            MOST_NAMES,
            *_too_many,
        )
    return [{name: episode[name] for name in names[:MOST_NAMES] if name in episode} for episode in episodes]


def with_metrics(episodes: tuple[EpisodeRecord, ...], info: Any) -> tuple[EpisodeRecord, ...]:
    """The episodes with what their environments reported. ``info``: of their last steps, as Gymnasium's vectors give it: of each
    key an array with a value for each environment, and under ``_key`` which of them have one."""
    given = info.get(EPISODE_METRICS, info) if isinstance(info, dict) else {}
    masks = {
        name: has
        for name, values in given.items()
        if isinstance(values, np.ndarray)
        and isinstance(has := given.get(f"_{name}"), np.ndarray)
        and (has.shape, has.dtype) == (values.shape[:1], np.bool_)
    }
    return tuple(
        dataclasses.replace(
            each,
            metrics=reported(
                {name: given[name][each.environment] for name, has in masks.items() if has[each.environment]}
            ),
        )
        for each in episodes
    )
