"""Reading and making what belongs to a job, and nothing that merely has its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import AlreadyExists, Forbidden, NotFound
from rljob_operator.kube.apiserver.resources import RLJOBS, Object, Resource, resource_of
from rljob_operator.kube.render.metadata import Owned


class NameConflict(Exception):
    """A child's name belongs to an object of somebody else; ``str()`` says which."""


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
    if not owned.has(found):
        what, owner = f"{resource.kind} {found['metadata']['name']}", _owner_in_words(found)
        if owner == f"{RLJOBS.kind} {owned.name}":
            raise NameConflict(f"waits until {what} of the {owner} that had this name before is gone")
        raise NameConflict(f"{what} of this namespace belongs to {owner}")
    return found


def _owner_in_words(found: Mapping[str, Any]) -> str:
    owners = found["metadata"].get("ownerReferences") or ()
    words = [f"{owner.get('kind')} {owner.get('name')}" for owner in owners]
    return ", ".join(words) if words else "nobody that it names, and was not made for this job"
