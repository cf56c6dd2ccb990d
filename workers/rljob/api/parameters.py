"""What the parameters of all algorithms and of environments have in common."""

from __future__ import annotations

from typing import Any, Self

from pydantic import ConfigDict

from rljob.api.types import APIModel

OF_THIS_NETWORK = "checkpoints hold the tensors of this network"
OF_THIS_FUNCTION = "a checkpoint's weights mean something between these functions alone"
OF_THIS_SCALE = "the network was trained on numbers of this scale"
"""Why a parameter never changes (`rljob.api.mutability`)."""


class ParameterSet(APIModel):
    """Base of the parameter sets. Frozen; ``updated`` gives a changed copy whose fields have been checked again.

    Each field is checked when a set is made, its default too. Rules between fields (`rljob.api.rules`) are asked when a manifest
    is read.
    """

    model_config = ConfigDict(validate_default=True)

    def updated(self, **changes: Any) -> Self:
        """A copy with ``changes`` (Python names), validated. Raises pydantic's ValidationError."""
        return type(self).model_validate({**self.model_dump(), **changes})
