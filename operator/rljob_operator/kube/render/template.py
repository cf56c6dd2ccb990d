"""A role's ``podTemplate`` on its generated pod, within what the controller must be able to rely on.

What would make the controller lose sight of the pod is refused, not put back in silence: its author meant something by it.
Everything else is the user's: a pod that the API server does not take is refused with its own message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rljob_operator.kube.render import names
from rljob_operator.kube.render.strategic_merge import PodTemplateProblem, merged

_IDENTITY: Final = ("name", "namespace", "generateName", "ownerReferences", "deletionGracePeriodSeconds")
_OF_THE_SPEC: Final = {
    "hostname": "peers find the member by it",
    "subdomain": "peers find the member by it",
    "restartPolicy": "the controller itself starts a member again, and counts its ends",
}


def patched(pod: Mapping[str, Any], patch: Mapping[str, Any] | None, path: str) -> dict[str, Any]:
    """The generated ``pod`` with the podTemplate ``patch`` that stands at ``path`` of the manifest.

    Raises `PodTemplateProblem` for a patch that cannot be merged, or that takes from the pod what the controller knows it by: its
    name and owner, the operator's labels and annotations, its host name, its restart policy, its worker container.
    """
    if not patch:
        return dict(pod)
    unknown = sorted(patch.keys() - {"metadata", "spec"})
    if unknown:
        raise PodTemplateProblem(f"{path}.{unknown[0]}: allowed: metadata and spec")
    try:
        found = merged(pod, patch)
    except PodTemplateProblem as problem:
        raise PodTemplateProblem(str(problem).replace("podTemplate", path, 1)) from None
    first = next(_lost(pod, found), None)
    if first is not None:
        raise PodTemplateProblem(f"{path}.{first}; leave it as it is")
    return found


def _lost(pod: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    """What the patched pod lacks of the generated one, each with the reason why it must have it."""
    before, after = pod["metadata"], found.get("metadata")
    if not isinstance(after, Mapping):
        yield "metadata: the controller knows the pod by it"
        return
    for field in _IDENTITY:
        if after.get(field) != before.get(field):
            yield f"metadata.{field}: the controller knows the pod by it"
    for field in ("labels", "annotations"):
        given = after.get(field)
        for key, value in before[field].items():
            kept = isinstance(given, Mapping) and given.get(key) == value
            if not kept and (key == names.MANAGED_BY or key.startswith(names.OURS)):
                yield f"metadata.{field}[{key}]: the controller knows the pod by it"
    spec = found.get("spec")
    if not isinstance(spec, Mapping):
        yield "spec: the pod needs one"
        return
    for field, why in _OF_THE_SPEC.items():
        if spec.get(field) != pod["spec"][field]:
            yield f"spec.{field}: {why}"
    containers = spec.get("containers")
    known = [each for each in containers if isinstance(each, Mapping)] if isinstance(containers, list) else []
    worker = next((each for each in known if each.get("name") == names.WORKER), None)
    if worker is None:
        yield f"spec.containers: the container {names.WORKER!r} runs the role"
    elif worker.get("restartPolicy"):
        yield f"spec.containers[{names.WORKER}].restartPolicy: {_OF_THE_SPEC['restartPolicy']}"
