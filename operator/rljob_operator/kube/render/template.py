"""A role's ``podTemplate`` on its generated pod, within what the controller must be able to rely on.

What would make the controller lose sight of the pod is refused, not put back in silence: its author meant something by it.
Everything else is the user's: a pod that the API server does not take is refused with its own message.

``podTemplate``: a patch on the pod that the operator generates for a role, merged as `kubectl patch --type=strategic` merges.

It stands among what makes pods, not in `rljob.api`: to a manifest a podTemplate is any mapping, and what a patch comes to is
known only beside the generated pod. So the reason why a pod looks as it does is found here.

Kubernetes calls it a strategic merge: mappings are merged field by field, a null removes a field, a list is replaced as a
whole unless its field is in `MERGE_KEYS`. ``tests/cluster`` compares the table with what an API server says of its own types,
and results with those of a real server.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from rljob_operator.kube.render import names
from rljob_operator.kube.render.names import PodProblem

MERGE_KEYS: Final[Mapping[str, str]] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ownerReferences": "uid",
    "finalizers": "",
}
"""For each list of a PodTemplateSpec that is merged, wherever it stands, the field that tells its entries apart; empty for a
list of strings. Every other list is replaced: tolerations, args, command, envFrom and so on.

These are the tags ``patchMergeKey`` of core's types. Server-side apply has keys of its own, some of them of two fields
(``containerPort`` and ``protocol``); a patch does not go by those, so it changes the first port of a number.
"""

_DIRECTIVE: Final = "$patch"


class PodTemplateProblem(PodProblem):
    """A patch that cannot be merged, or may not be; ``str()`` says where and why."""


def merged(template: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """A new PodTemplateSpec: ``template`` changed by ``patch``. Neither argument is changed. Raises PodTemplateProblem.

    Differs from Kubernetes where that would lose in silence what was written: a mapping with ``$patch: replace`` counts also
    where the pod has no such field (Kubernetes drops it there), and in an entry of a list, where it replaces the whole list, it
    has to stand alone. ``$retainKeys``, which a null in the place of each other field says, too, and ``$setElementOrder`` and
    ``$deleteFromPrimitiveList``, which `kubectl apply` writes for itself, are refused. A directive or a null below an entry that
    is new is left out, as there is nothing for it to act on.
    """
    _check_directives(patch, "podTemplate")
    return _mapping(copy.deepcopy(dict(template)), patch, "podTemplate")


def _check_directives(value: Any, path: str, *, entry: bool = False) -> None:
    if isinstance(value, Mapping):
        for name, item in value.items():
            if name.startswith("$") and name != _DIRECTIVE:
                raise PodTemplateProblem(f"{path}.{name}: unknown directive; allowed: {_DIRECTIVE} (delete or replace)")
            _check_directives(item, f"{path}.{name}")
        directive = value.get(_DIRECTIVE, "delete")
        if directive not in ("delete", "replace"):
            raise PodTemplateProblem(f"{path}.{_DIRECTIVE}: got {directive!r}; allowed: delete, replace")
        if entry and directive == "replace" and len(value) > 1:
            raise PodTemplateProblem(
                f"{path}.{_DIRECTIVE}: it replaces the whole list; write it as an entry of its own"
            )
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _check_directives(item, f"{path}[{i}]", entry=True)


def _mapping(original: Mapping[str, Any], patch: Mapping[str, Any], path: str) -> dict[str, Any]:
    if _DIRECTIVE in patch:
        return _taken(patch) or {}
    result = dict(original)
    for name, value in patch.items():
        here, before = f"{path}.{name}", result.get(name)
        if value is None:
            result.pop(name, None)
        elif isinstance(before, Mapping) and isinstance(value, Mapping):
            result[name] = _mapping(before, value, here)
        elif isinstance(before, list) and isinstance(value, list) and name in MERGE_KEYS:
            key = MERGE_KEYS[name]
            result[name] = _entries(before, value, key, here) if key else _words(before, value, here)
        else:
            result.pop(name, None)
            taken = _taken(value)
            if taken is not None:
                result[name] = taken
    return result


def _taken(value: Any) -> Any:
    """What is written in the place of nothing, or of something else: a copy without nulls and directives; None for nothing."""
    if isinstance(value, Mapping):
        if value.get(_DIRECTIVE) == "delete":
            return None
        taken = {name: _taken(item) for name, item in value.items() if name != _DIRECTIVE}
        return {name: item for name, item in taken.items() if item is not None}
    if isinstance(value, list):
        return [_taken(item) for item in value if not (isinstance(item, Mapping) and _DIRECTIVE in item)]
    return value


def _entries(original: list[Any], patch: list[Any], key: str, path: str) -> list[Any]:
    """A list whose entries are told apart by ``key``."""
    for i, entry in enumerate(patch):
        if not isinstance(entry, Mapping):
            raise PodTemplateProblem(f"{path}[{i}]: got {entry!r}; allowed: a mapping of fields")
        if entry.get(_DIRECTIVE) != "replace" and not isinstance(entry.get(key), str | int):
            raise PodTemplateProblem(f"{path}[{i}].{key}: required, as it says which entry is meant")
    plain = [entry for entry in patch if _DIRECTIVE not in entry]
    if any(entry.get(_DIRECTIVE) == "replace" for entry in patch):
        return [_taken(entry) for entry in plain]
    gone = {entry[key] for entry in patch if _DIRECTIVE in entry}
    before = [entry for entry in original if entry[key] not in gone]
    result = list(before)
    for entry in plain:
        at = next((i for i, each in enumerate(result) if each[key] == entry[key]), None)
        if at is None:
            result.append(_taken(entry))
        else:
            result[at] = _mapping(result[at], entry, f"{path}[{entry[key]}]")
    return _ordered(result, before, plain, lambda entry: entry[key])


def _words(original: list[Any], patch: list[Any], path: str) -> list[Any]:
    if not all(isinstance(word, str) for word in patch):
        raise PodTemplateProblem(f"{path}: allowed: a list of words")
    return _ordered(list(dict.fromkeys([*original, *patch])), original, patch, lambda word: word)


def _ordered(
    entries: list[Any], before: Sequence[Any], patch: Sequence[Any], identity: Callable[[Any], Any]
) -> list[Any]:
    """Entries in the order that a server gives them: those of the patch in its order, the others in theirs; where one of either
    may come first, the one that stood first before, and a new one before all that is left.

    It matters: init containers run in their order, and a variable sees those above it.
    """
    place = {identity(entry): i for i, entry in reversed([*enumerate(before)])}
    rank = {identity(entry): i for i, entry in reversed([*enumerate(patch)])}
    named = sorted((each for each in entries if identity(each) in rank), key=lambda each: rank[identity(each)])
    others = [each for each in entries if identity(each) not in rank]
    ordered = []
    while named and others:
        stood = place.get(identity(named[0]))
        ordered.append((others if stood is not None and place[identity(others[0])] < stood else named).pop(0))
    return [*ordered, *named, *others]


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
    before, after, spec = pod["metadata"], _fields(found, "metadata"), _fields(found, "spec")
    for field in _IDENTITY:
        if after.get(field) != before.get(field):
            yield f"metadata.{field}: the controller knows the pod by it"
    for field in ("labels", "annotations"):
        ours = {key for key in before[field] if key == names.MANAGED_BY or key.startswith(names.OURS)}
        for key in sorted(ours):
            if _fields(after, field).get(key) != before[field][key]:
                yield f"metadata.{field}[{key}]: the controller knows the pod by it"
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


def _fields(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The mapping at ``name``; empty where a patch has put something else there."""
    found = of.get(name)
    return found if isinstance(found, Mapping) else {}
