"""The Secrets of a job: its keys are made once, for all roles, and kept while anything of it runs.

All of them stand in one Secret that no pod has; the roles' Secrets are made from it. Deleting some of these costs the job
nothing, as long as what is left says what the others were. What runs goes on with the keys that it has read. But new keys beside
old ones would be of no use: roles with one kind could not talk to roles with the other. An object that merely has the name of
one of the job's is left alone.
"""

import base64
import secrets as randomness
from collections.abc import Mapping
from typing import Any

from rljob.wire.keyfile import joined_keys, keys_of_role, new_keys
from rljob.wire.security import SecurityProblem

from rljob_operator.core.member import Role
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.concurrently import concurrently
from rljob_operator.kube.apiserver.errors import AlreadyExists, Forbidden, NotFound
from rljob_operator.kube.apiserver.resources import RLJOBS, SECRETS, Object, Resource, resource_of
from rljob_operator.kube.render import names
from rljob_operator.kube.render.children import Secrets, secret_objects
from rljob_operator.kube.render.metadata import Owned, is_of


class NameConflict(Exception):
    """A child's name belongs to an object that is not the job's; ``str()`` says which."""


async def create(client: Client, owned: Owned, document: Object) -> tuple[Object, bool]:
    """(the object as it is stored, whether it is new). Raises `NameConflict` where it is not the job's."""
    resource = resource_of(document)
    try:
        return await client.create(resource, document), True
    except (AlreadyExists, Forbidden) as refused:  # a full quota refuses what is there already, too
        about = document["metadata"]
        try:
            found = await client.get(resource, about["namespace"], about["name"])
        except NotFound:
            raise refused from None
    return _own(owned, resource, found), False


async def get_own(client: Client, owned: Owned, resource: Resource, name: str) -> Object | None:
    """The job's object of that name; None where there is none. Raises `NameConflict` where it is not the job's."""
    try:
        found = await client.get(resource, owned.job.metadata.namespace, name)
    except NotFound:
        return None
    return _own(owned, resource, found)


def _own(owned: Owned, resource: Resource, found: Object) -> Object:
    if not is_of(found, owned.uid):
        what, owner = f"{resource.kind} {found['metadata']['name']}", _owner_in_words(found)
        if owner == f"{RLJOBS.kind} {owned.name}":
            raise NameConflict(f"waits until {what} of the {owner} that had this name before is gone")
        raise NameConflict(f"{what} of this namespace belongs to {owner}")
    return found


def _owner_in_words(found: Mapping[str, Any]) -> str:
    words = [f"{owner.get('kind')} {owner.get('name')}" for owner in found["metadata"].get("ownerReferences") or ()]
    return ", ".join(words) if words else "no owner that it names, and was not made for this job"


_KEYS = "keys.json"
_TOKEN = "token"


class KeysLost(Exception):
    """The keys that the job's pods have are lost; ``str()`` says what is to be done."""


async def ensure_secrets(client: Client, owned: Owned, *, new: bool, idle: bool) -> str:
    """Make what is missing; the token that requests to the learner need.

    ``new``: nothing was ever made for the job. ``idle``: nothing of it runs, so that it may get other keys. Raises `KeysLost`,
    `NameConflict`, and whatever `Client` raises; called again it goes on where it was.
    """
    stored = None if new else await get_own(client, owned, SECRETS, names.operator_secret(owned.name))
    if stored is None:
        keys, token = (
            (new_keys(), randomness.token_urlsafe(32)) if new else await _known_by_others(client, owned, idle=idle)
        )
        stored, _ = await create(client, owned, _master(owned, keys, token))
    kept = _texts(stored)
    made = Secrets({role: keys_of_role(kept[_KEYS], str(role)) for role in Role}, kept[_TOKEN])
    await concurrently(*(_ensure_one(client, owned, each, new=new) for each in secret_objects(owned, made)))
    return made.token


async def _ensure_one(client: Client, owned: Owned, secret: Object, *, new: bool) -> None:
    if new or await get_own(client, owned, SECRETS, secret["metadata"]["name"]) is None:
        await create(client, owned, secret)


async def token_of(client: Client, owned: Owned) -> str:
    """The token of a job whose Secrets are there; empty where they are not."""
    for name, key in ((names.operator_secret(owned.name), _TOKEN), (names.token_secret(owned.name), names.TOKEN_FILE)):
        try:
            found = await client.get(SECRETS, owned.job.metadata.namespace, name)
        except NotFound:
            continue
        return _texts(found)[key] if is_of(found, owned.uid) else ""
    return ""


async def _known_by_others(client: Client, owned: Owned, *, idle: bool) -> tuple[str, str]:
    """(keys, token) as the Secrets that pods mount have them; new ones where there are none and no pod has any."""
    stored = await get_own(client, owned, SECRETS, names.token_secret(owned.name))
    token = _texts(stored)[names.TOKEN_FILE] if stored is not None else randomness.token_urlsafe(32)
    if owned.job.spec.network.encryption == "None":
        return new_keys(), token
    texts: dict[str, str] = {}
    for role in Role:
        found = await get_own(client, owned, SECRETS, names.keys_secret(owned.name, role))
        if found is not None:
            texts[str(role)] = _texts(found)[names.KEYS_FILE]
    if not texts and idle:
        return new_keys(), token
    try:
        return joined_keys(texts), token
    except SecurityProblem as problem:
        raise KeysLost(_what_to_do(owned, list(texts), str(problem), idle=idle)) from None


def _what_to_do(owned: Owned, left: list[str], problem: str, *, idle: bool) -> str:
    secrets = ", ".join(names.keys_secret(owned.name, Role(role)) for role in left)
    steps = [] if idle else ["suspend the job"]
    steps += [f"delete Secret {secrets}"] if secrets else []
    steps += [] if idle else ["resume it"]
    runs = "" if idle else "; what runs goes on with the keys that it has, and nothing can be added to it"
    return f"Secret {names.operator_secret(owned.name)} was deleted, and {problem}{runs}: {', '.join(steps)}"


def _master(owned: Owned, keys: str, token: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "immutable": True,
        "metadata": owned.metadata(names.operator_secret(owned.name)),
        "data": {name: base64.b64encode(text.encode()).decode() for name, text in ((_KEYS, keys), (_TOKEN, token))},
    }


def _texts(secret: Mapping[str, Any]) -> dict[str, str]:
    return {name: base64.b64decode(text).decode() for name, text in (secret.get("data") or {}).items()}
