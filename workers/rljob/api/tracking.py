"""Where a run's figures go beside its own folder: W&B, MLflow."""

from typing import Annotated

from pydantic import Field

from rljob.api.pods import SecretRef
from rljob.api.types import APIModel, Text

_Word = Text(128, "a name without '/'", r"^[^/\s]([^/\n]*[^/\s])?$")


class WandbTracking(APIModel):
    """A run of W&B; its client is the extra [wandb]. The key comes from WANDB_API_KEY or from `wandb login`."""

    project: Annotated[str, _Word] = "rljob"
    """The project."""
    entity: Annotated[str, _Word] | None = None
    """The team or user; unset: the key's own."""
    group: Annotated[str, _Word] | None = None
    """What the run is shown under with others, such as an experiment's name."""
    tags: Annotated[list[Annotated[str, Text(64, "a tag")]], Field(max_length=64)] = Field(default_factory=list)
    """Words to find it by."""


class MLflowTracking(APIModel):
    """A run of MLflow; its client is the extra [mlflow]. Credentials come from MLFLOW_TRACKING_TOKEN and the like."""

    uri: Annotated[str, Text(2048, 'a tracking URI without credentials, such as "http://mlflow:5000"', r"^[^\s@]+$")]
    """Address of the tracking server."""
    experiment: Annotated[str, Text(256, "a name", r"^\S(.*\S)?$")] = "rljob"
    """The experiment; made where it is missing."""


class TrackingSpec(APIModel):
    """Where figures are sent while the job trains. What can't be sent never holds it up, and is sent later."""

    wandb: WandbTracking | None = None
    """Sends them to W&B."""
    mlflow: MLflowTracking | None = None
    """Sends them to MLflow."""
    secret_ref: SecretRef | None = None
    """Credentials on a cluster, as variables (WANDB_API_KEY, MLFLOW_TRACKING_TOKEN ...) of the tracker's containers alone."""
