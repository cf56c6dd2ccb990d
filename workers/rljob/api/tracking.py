"""Where a run's figures go beside its own folder: W&B, MLflow."""

from typing import Annotated

from pydantic import Field

from rljob.api.pods import SecretRef
from rljob.api.types import APIModel, Text

_Word = Text(128, "a name without '/'", r"^[^/\s]([^/\n]*[^/\s])?$")
_URI = Text(
    2048,
    'a tracking URI without credentials, such as "http://mlflow:5000"',
    r"^[^\s@:]+(:[^\s@0-9][^\s@]*)?$",  # to MLflow "mlflow:5000" is a scheme that it does not know
)


class WandbTracking(APIModel):
    """A run of W&B; its client is the extra [wandb]. The key comes from WANDB_API_KEY or from `wandb login`."""

    project: Annotated[str, _Word] = "rljob"
    """Name of the project."""
    entity: Annotated[str, _Word] | None = None
    """Team or user. Unset: the key's own."""
    group: Annotated[str, _Word] | None = None
    """Group of runs, such as an experiment's name."""
    tags: Annotated[list[Annotated[str, Text(64, "a tag")]], Field(max_length=64)] = Field(default_factory=list)
    """Tags of the run."""


class MLflowTracking(APIModel):
    """A run of MLflow; its client is the extra [mlflow]. Credentials come from MLFLOW_TRACKING_TOKEN and the like."""

    uri: Annotated[str, _URI]
    """Address of the tracking server."""
    experiment: Annotated[str, Text(256, "a name", r"^\S(.*\S)?$")] = "rljob"
    """Experiment; created if missing."""


class TrackingSpec(APIModel):
    """Trackers that also get the metrics. A tracker that cannot be reached never delays training; its points are sent later."""

    wandb: WandbTracking | None = None
    """Send metrics to W&B."""
    mlflow: MLflowTracking | None = None
    """Send metrics to MLflow."""
    secret_ref: SecretRef | None = None
    """Credentials on a cluster, as variables (WANDB_API_KEY, MLFLOW_TRACKING_TOKEN ...) of the tracker's containers alone."""
