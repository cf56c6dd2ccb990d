"""What pods of a job are given: the job in force, their keys, the token, and an identity without rights."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from rljob.api import dump_manifest

from rljob_operator.core.member import Role
from rljob_operator.kube.render import names
from rljob_operator.kube.render.metadata import Owned


def config_map(owned: Owned) -> dict[str, Any]:
    """The job in force, with every preset and default filled in, as roles read it when they start; in the fields of the release
    whose images they run."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": owned.metadata(names.config_map(owned.name)),
        "data": {names.JOB_FILE: dump_manifest(owned.job, owned.in_fields_of_start)},
    }


def keys_secret(owned: Owned, role: Role, keys: str) -> dict[str, Any]:
    """A role's keys: ``keys`` is the text of its file as `rljob.wire.keyfile` writes it, with its own secret and everyone's
    public key. They are made once and never change while pods hold them."""
    return {
        **_secret(owned, names.keys_secret(owned.name, role), {names.KEYS_FILE: keys}),
        "immutable": True,
    }


def token_secret(owned: Owned, token: str) -> dict[str, Any]:
    """The token that requests to the learner need; the learner reads it anew for each request, so it may be replaced."""
    return _secret(owned, names.token_secret(owned.name), {names.TOKEN_FILE: token})


def service_account(owned: Owned) -> dict[str, Any]:
    """Of the pods, which ask the API server for nothing."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": owned.metadata(names.service_account(owned.name)),
        "automountServiceAccountToken": False,
    }


def _secret(owned: Owned, name: str, files: Mapping[str, str]) -> dict[str, Any]:
    data = {file: base64.b64encode(text.encode()).decode() for file, text in files.items()}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": owned.metadata(name), "data": data}
