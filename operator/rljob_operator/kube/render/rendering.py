"""What pods are made with beside the manifest, and how a job keeps it while it runs: the operator's images, and the version of
rendering.

A worker image reads the variables, ports and paths that its pod was rendered with, and members of one job talk to each other. So
a job that runs goes on with what it was started with, under an operator with another default image and under another release.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rljob.api.conditions import Reason
from rljob.api.controller_memory import RenderingMemory
from rljob.api.status import RLJobStatus

from rljob_operator.core.desired import Refusal
from rljob_operator.kube.render.settings import Settings

VERSION: Final = 1
"""Of how pods are rendered now. Raised when a pod would no longer understand its job's other pods, or the image of the release
before; pods of the versions before are then rendered as they were, for as long as they are in `KNOWN`."""
KNOWN: Final = frozenset({VERSION})
"""Versions of which pods can be made."""


def offered(settings: Settings) -> RenderingMemory:
    """What a job that starts now is made with."""
    return RenderingMemory(version=VERSION, image=settings.image, gpu_image=settings.gpu_image)


def settings_for(status: RLJobStatus, settings: Settings) -> Settings:
    """The operator's settings with the images that the job was started with; as they are where nothing of it runs."""
    fixed = status.controller.rendering
    if fixed is None or status.controller.active_since is None:
        return settings
    return replace(settings, image=fixed.image or settings.image, gpu_image=fixed.gpu_image)


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
