"""What a job's objects are made with beside its manifest, and how it keeps that while it runs: the operator's images and other
settings, and the version of rendering.

A worker image reads the variables, ports and paths that its pod was rendered with, and members of one job talk to each other. So
a job that runs goes on with what it was started with, under an operator with another configuration and under another release.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

from rljob.api.conditions import Reason
from rljob.api.controller_memory import RenderingMemory
from rljob.api.status import RLJobStatus

from rljob_operator.core.desired import Refusal
from rljob_operator.kube.render.kept_settings import as_text, with_kept
from rljob_operator.kube.render.settings import Settings

VERSION: Final = 2
"""Version of how pods are rendered now. Raised when a pod would no longer understand its job's other pods, or the image of the
release before; pods of the versions before are then rendered as they were, for as long as they are in `KNOWN`."""
KNOWN: Final = frozenset({1, VERSION})
"""Versions of which pods can be made."""
_REMEMBERED_AT_ONCE: Final = 16
"""An operator's settings are the same for all jobs but those that keep a claim; each reconciliation asks what to keep of them."""


def offered(status: RLJobStatus, settings: Settings) -> RenderingMemory:
    """What the job is made with where it starts now."""
    return _memory_of(_at_a_start(status, settings), VERSION)


@lru_cache(_REMEMBERED_AT_ONCE)
def _memory_of(taken: Settings, version: int) -> RenderingMemory:
    return RenderingMemory(version=version, image=taken.image, gpu_image=taken.gpu_image, settings=as_text(taken))


def settings_for(status: RLJobStatus, settings: Settings) -> Settings:
    """What the job's objects are made with: ``settings`` of the operator, and of a job that runs those that it keeps."""
    fixed = status.controller.rendering
    if fixed is None or status.controller.active_since is None:
        return _at_a_start(status, settings)
    return started_with(fixed, settings)


def started_with(fixed: RenderingMemory, settings: Settings) -> Settings:
    """What a job's objects were made with when it was last started."""
    kept = with_kept(settings, fixed.settings)
    return replace(kept, image=fixed.image or settings.image, gpu_image=fixed.gpu_image, rendering=fixed.version)


def _at_a_start(status: RLJobStatus, settings: Settings) -> Settings:
    """The operator's settings. A job that was given a claim for its checkpoints keeps it when it comes up again, also where
    jobs are given none any more: what it has learned is there."""
    fixed = status.controller.rendering
    if fixed is None or settings.checkpoint_size:
        return settings
    had = with_kept(settings, fixed.settings)
    return replace(settings, checkpoint_size=had.checkpoint_size, checkpoint_class=had.checkpoint_class)


def unknown_rendering(status: RLJobStatus, *, suspend: bool) -> Refusal | None:
    """Why no pod can be added to a job that runs: it was started by a release whose pods this one does not make.

    What runs goes on. A job that is being suspended is not refused: when it is resumed it is made as this release makes it.
    """
    fixed = status.controller.rendering
    if suspend or fixed is None or status.controller.active_since is None or fixed.version in KNOWN:
        return None
    return Refusal(
        Reason.RENDERING_UNKNOWN,
        f"the job runs with pods of rendering {fixed.version}, and this release of the operator makes those of "
        f"{', '.join(map(str, sorted(KNOWN)))}; what runs goes on, nothing is started: suspend and resume the job",
    )
