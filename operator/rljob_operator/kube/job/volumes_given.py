"""Whether a job that starts gets a volume for its checkpoints: the API server is asked, by a claim that is not made.

The admission plugin that gives a claim the cluster's default StorageClass answers it in one call. It takes no right to read
StorageClasses, which an operator of single namespaces does not have, and hears of quotas and policies as well.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import Forbidden, Invalid
from rljob_operator.kube.apiserver.resources import VOLUME_CLAIMS
from rljob_operator.kube.render.claims import checkpoint_claim_of
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.volumes import makes_checkpoint_claim

log = logging.getLogger(__name__)


async def settings_of_start(client: Client, owned: Owned, settings: Settings) -> Settings:
    """``settings``, without a claim for checkpoints where it would stay without a volume. A StorageClass that the operator's
    configuration names is taken as it stands."""
    if settings.checkpoint_class or not makes_checkpoint_claim(owned.job, settings):
        return settings
    document = checkpoint_claim_of(owned, settings)
    about = {name: value for name, value in document["metadata"].items() if name != "name"}
    tried = {**document, "metadata": {**about, "generateName": "rljob-"}}
    try:
        stored = await client.create(VOLUME_CLAIMS, tried, dry_run=True)
    except (Forbidden, Invalid) as refusal:
        log.warning(
            "%s: checkpoints end with the learner's pod, since a claim for them is refused: %s", owned.name, refusal
        )
        return replace(settings, checkpoint_size="")
    return settings if stored["spec"].get("storageClassName") else replace(settings, checkpoint_size="")
