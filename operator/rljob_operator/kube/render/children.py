"""Everything that a job has besides its pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rljob_operator.core.member import Role
from rljob_operator.kube.render import names
from rljob_operator.kube.render.claims import claims
from rljob_operator.kube.render.config import config_map, keys_secret, service_account, token_secret
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.network import network_policy, service
from rljob_operator.kube.render.settings import Settings


@dataclass(frozen=True, slots=True)
class Secrets:
    """What is made once for a job by chance and stays: the text of each role's file of keys, and the token."""

    keys: Mapping[Role, str]
    token: str


def children(owned: Owned, secrets: Secrets, settings: Settings) -> list[dict[str, Any]]:
    """The objects, in the order in which they are made: before any pod that needs them."""
    return [service_account(owned), *secret_objects(owned, secrets), *changing_children(owned, settings)]


def secret_objects(owned: Owned, secrets: Secrets) -> list[dict[str, Any]]:
    """The Secrets, which are made once. Every role has keys, whether the job has such pods now or not: the keys of all are in the
    file of each, so that a role which comes later is known."""
    curve = owned.job.spec.network.encryption == "Curve"
    found = [keys_secret(owned, role, secrets.keys[role]) for role in Role] if curve else []
    return [*found, token_secret(owned, secrets.token)]


def changing_children(owned: Owned, settings: Settings) -> list[dict[str, Any]]:
    """The objects that follow from the job and the settings alone, and change with them."""
    policy = owned.job.spec.network.policy == "Enabled"
    return [
        config_map(owned),
        service(owned),
        *([network_policy(owned, settings)] if policy else []),
        *claims(owned, settings),
    ]


def unwanted(owned: Owned) -> list[tuple[str, str]]:
    """(kind, name) of the objects that the job could have and does not want: to be deleted where an earlier manifest did."""
    job, name = owned.job, owned.name
    return [] if job.spec.network.policy == "Enabled" else [("NetworkPolicy", names.network_policy(name))]
