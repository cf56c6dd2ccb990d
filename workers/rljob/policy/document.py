"""What is to be known of an exported policy by who has only the files: shapes, types, actions, and how observations are made."""

from __future__ import annotations

from typing import Any

from rljob.policy.trained import Policy

FORMAT = 1


def document(policy: Policy, form: str) -> dict[str, Any]:
    """As JSON. Names of parameters are those of a manifest (docs/api-reference.md)."""
    spec, env_params = policy.stored.spec, policy.stored.env_params
    memory = {"shape": ["N", 2, policy.memory_units], "dtype": "float32"} if policy.memory_units else None
    return {
        "format": FORMAT,
        "form": form,
        "algorithm": policy.algorithm,
        "observations": {
            "shape": ["N", *spec.observation_shape],
            "dtype": spec.frame_dtype,
            "stack": spec.stack,
            "order": "oldest frame first",
            "scaling": "inside the network: frames go in as they are",
        },
        "actions": {"count": spec.num_actions, "ofTheEnvironment": list(env_params.actions) or "all, in its own order"},
        "memory": memory,
        "environment": {"id": spec.id, **env_params.model_dump(mode="json", by_alias=True)},
        "algorithmParameters": policy.stored.params.model_dump(mode="json", by_alias=True),
        "counters": policy.manifest.get("counters"),
        "verdict": policy.manifest.get("verdict"),
        "checkpointSha256": policy.manifest.get("sha256"),
    }
