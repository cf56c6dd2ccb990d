"""The two Secrets of a job: its keys are made once, for all roles, and kept while anything of it runs.

The core's Secret has all of them, and the actors' is made from it. Pods that run go on with the keys that they have read, but
new keys beside old ones would be of no use: roles with one kind could not talk to roles with the other. An object that merely has
the name of one of the job's is left alone.
"""

import base64
import secrets as randomness
from collections.abc import Mapping
from typing import Any

from rljob.wire.security import keys_of_role, new_keys

from rljob_operator.core.member import Role
from rljob_operator.kube.apiserver.client import Client
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
        what, owner = f"{resource.kind} {found['metadata']['name']}", _owner_in_words(owned, found)
        if owner == f"{RLJOBS.kind} {owned.name}":
            raise NameConflict(f"waits until {what} of the {owner} that had this name before is gone")
        raise NameConflict(f"{what} of this namespace belongs to {owner}")
    return found


def _owner_in_words(owned: Owned, found: Mapping[str, Any]) -> str:
    words = [f"{owner.get('kind')} {owner.get('name')}" for owner in found["metadata"].get("ownerReferences") or ()]
    labels, how = names.labels(owned.name), "rename the job, or delete it"
    if (
        labels.items() <= (found["metadata"].get("labels") or {}).items()
    ):  # its pods would be found under the new ones' names
        how = (
            "what an earlier job left, checkpoints included, goes with: kubectl delete pods,secrets,configmaps,services,"
            f"networkpolicies,persistentvolumeclaims -n {found['metadata']['namespace']} -l {names.selector(labels)}"
        )
    return ", ".join(words) or f"no owner that it names, and was not made for this job; {how}"


class KeysLost(Exception):
    """The keys that the job's pods have are lost; ``str()`` says what is to be done."""


async def ensure_secrets(client: Client, owned: Owned, *, new: bool, idle: bool) -> str:
    """Make what is missing; the token that requests to the learner need.

    ``new``: nothing was ever made for the job. ``idle``: nothing of it runs, so that it may get other keys. Raises `KeysLost`,
    `NameConflict`, and whatever `Client` raises; called again it goes on where it was.
    """
    core, actors = names.core_secret(owned.name), names.actor_secret(owned.name)
    there = {name: None if new else await get_own(client, owned, SECRETS, name) for name in (core, actors)}
    stored = there[core]
    if stored is None or not _texts(stored).keys() >= {names.TOKEN_FILE, *map(names.keys_entry, Role)}:
        left = [name for name, secret in there.items() if secret is not None]
        if left or not (new or idle):
            raise KeysLost(_what_to_do(core, left, idle=idle))
        whole = new_keys()
        made = Secrets({role: keys_of_role(whole, str(role)) for role in Role}, randomness.token_urlsafe(32))
        stored, _ = await create(client, owned, secret_objects(owned, made)[0])
    texts = _texts(stored)
    known = Secrets({role: texts[names.keys_entry(role)] for role in Role}, texts[names.TOKEN_FILE])
    for document in secret_objects(owned, known)[1:]:
        if there[actors] is None:
            await create(client, owned, document)
    return known.token


async def token_of(client: Client, owned: Owned) -> str:
    """The token of a job whose Secrets are there; empty where they are not."""
    try:
        found = await client.get(SECRETS, owned.job.metadata.namespace, names.core_secret(owned.name))
    except NotFound:
        return ""
    return _texts(found).get(names.TOKEN_FILE, "") if is_of(found, owned.uid) else ""


def _what_to_do(core: str, left: list[str], *, idle: bool) -> str:
    steps = [*([] if idle else ["suspend the job"]), *(f"delete Secret {name}" for name in left)]
    steps += [] if idle else ["resume it"]
    runs = "" if idle else "; what runs goes on with the keys that it has, and nothing can be added to it"
    return f"Secret {core} {'lacks keys' if core in left else 'was deleted'}{runs}: {', '.join(steps)}"


def _texts(secret: Mapping[str, Any]) -> dict[str, str]:
    return {name: base64.b64decode(text).decode() for name, text in (secret.get("data") or {}).items()}
