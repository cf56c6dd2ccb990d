"""Makes sure that a job has everything besides its pods: Secrets once, the rest as the job in force says.

A child is created by POST, so that a name which belongs to somebody else is found out and never merged into; from then on it is
changed by server-side apply under its own uid.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets as randomness
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rljob.wire.keyfile import keys_of_role, new_keys

from rljob_operator.core.member import Role
from rljob_operator.kube import names
from rljob_operator.kube.client import Client
from rljob_operator.kube.errors import AlreadyExists, Conflict, NotFound
from rljob_operator.kube.render.children import Secrets, changing_children, secret_objects, unwanted
from rljob_operator.kube.render.config import service_account
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.resources import ALL, SECRETS, Object, resource_of

_MASTER_KEYS = "keys.json"
_MASTER_TOKEN = "token"
_MADE_ONCE = ("PersistentVolumeClaim", "ServiceAccount")
"""Kinds that are left as they are once they are there: nothing of them may or need be changed."""


class NameConflict(Exception):
    """A child's name belongs to an object of somebody else; ``str()`` says which."""


@dataclass(slots=True)
class Known:
    """What is known of one job's children.

    Attributes:
        digests: (kind, name) -> digest of what was last written, of those that are there.
        uids: (kind, name) -> uid.
        token: what requests to the learner carry; empty while the Secrets are not there.
    """

    digests: dict[tuple[str, str], str] = field(default_factory=dict)
    uids: dict[tuple[str, str], str] = field(default_factory=dict)
    token: str = ""


async def ensure(client: Client, owned: Owned, settings: Settings, known: Known) -> None:
    """Create what is missing, change what differs, delete what the job no longer wants.

    Raises `NameConflict`, and whatever `Client` raises; called again it goes on where it was.
    """
    if not known.token:
        await _ensure_secrets(client, owned, known)
    for document in (service_account(owned), *changing_children(owned, settings)):
        await _ensure(client, owned, document, known)
    for kind, name in unwanted(owned):
        if known.digests.pop((kind, name), None) is not None or (kind, name) not in known.uids:
            resource = next(each for each in ALL if each.kind == kind)
            try:
                found = await client.get(resource, owned.job.metadata.namespace, name)
            except NotFound:
                known.uids[kind, name] = ""
                continue
            if _is_of(found, owned):
                await client.delete(resource, owned.job.metadata.namespace, name, uid=found["metadata"]["uid"])
            known.uids[kind, name] = ""


async def _ensure(client: Client, owned: Owned, document: Object, known: Known) -> None:
    about = document["metadata"]
    place = (document["kind"], about["name"])
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    if known.digests.get(place) == digest:
        return
    if not known.uids.get(place):
        stored, new = await _create(client, owned, document)
        known.uids[place] = stored["metadata"]["uid"]
        if new or document["kind"] in _MADE_ONCE:
            known.digests[place] = digest
            return
    if document["kind"] not in _MADE_ONCE:
        try:
            await client.apply(resource_of(document), document, uid=known.uids[place])
        except Conflict:  # somebody has deleted it: the next try makes it anew
            known.uids.pop(place)
            known.digests.pop(place, None)
            raise
    known.digests[place] = digest


async def _ensure_secrets(client: Client, owned: Owned, known: Known) -> None:
    """All keys are made at once and kept in one Secret that no pod sees; the roles' Secrets are made from it, now or after a
    crash in between."""
    metadata = owned.metadata(names.operator_secret(owned.name))
    data = {_MASTER_KEYS: new_keys(), _MASTER_TOKEN: randomness.token_urlsafe(32)}
    document = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "immutable": True,
        "metadata": metadata,
        "data": {name: base64.b64encode(text.encode()).decode() for name, text in data.items()},
    }
    stored, _ = await _create(client, owned, document)
    kept = {name: base64.b64decode(text).decode() for name, text in stored["data"].items()}
    made = Secrets({role: keys_of_role(kept[_MASTER_KEYS], str(role)) for role in Role}, kept[_MASTER_TOKEN])
    for each in secret_objects(owned, made):
        await _create(client, owned, each)
    known.token = made.token


async def _create(client: Client, owned: Owned, document: Object) -> tuple[Object, bool]:
    """(the object as it is stored, whether it is new). Raises `NameConflict` where it is not the job's."""
    resource = resource_of(document)
    try:
        return await client.create(resource, document), True
    except AlreadyExists:
        about = document["metadata"]
        found = await client.get(resource, about["namespace"], about["name"])
    if not _is_of(found, owned):
        raise NameConflict(f"{resource.kind} {about['name']} of this namespace belongs to {_owner_in_words(found)}")
    return found, False


async def token_of(client: Client, owned: Owned) -> str:
    """The token of a job whose Secrets are there; empty where they are not."""
    try:
        found = await client.get(SECRETS, owned.job.metadata.namespace, names.operator_secret(owned.name))
    except NotFound:
        return ""
    return base64.b64decode(found["data"][_MASTER_TOKEN]).decode() if _is_of(found, owned) else ""


def _is_of(found: Mapping[str, Any], owned: Owned) -> bool:
    return any(owner.get("uid") == owned.uid for owner in found["metadata"].get("ownerReferences") or ())


def _owner_in_words(found: Mapping[str, Any]) -> str:
    owners = found["metadata"].get("ownerReferences") or ()
    words = [f"{owner.get('kind')} {owner.get('name')}" for owner in owners]
    return ", ".join(words) if words else "nobody that it names, and was not made for this job"
