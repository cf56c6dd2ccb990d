"""What an API server would refuse of a rendered pod, told without one: a manifest's values become parts of pods, and of an RLJob
an API server checks only the fields that its definition describes.

Fields, their types and which are required are those of the Kubernetes client's models. `_RULES` are what core's validation says
beyond that of fields that a manifest is likely to set. Of rarer ones the API server's own words are told, when the operator makes
the pod (`kube.job.refusals`). ``tests/cluster/test_server_rules.py`` compares both with a real server.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from pydantic import ValidationError
from rljob.api.problems import ABSENT, Location, Problem, path_of
from rljob.api.types import QUANTITY_PATTERN, quantity


def problems(document: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with a pod, or with the metadata of another object, each with its place."""
    from kubernetes.aio.client import models  # those of a pod take a second, and the operator needs none

    try:
        if document["kind"] == "Pod":
            models.V1Pod.model_validate(document)
    except ValidationError as error:
        for each in error.errors():
            if _QUANTITIES.isdisjoint(each["loc"]) or not isinstance(each["input"], int | float):
                got = ABSENT if each["type"] == "missing" else each["input"]
                yield Problem(path_of(each["loc"]), got, _MESSAGES.get(each["type"], each["msg"]))
    for place, fields, value in _values(document):
        for names, wrong, allowed in _RULES:
            with suppress(TypeError, AttributeError, KeyError, ValueError):  # not of its type, which is told already
                if not fields.isdisjoint(names) and (got := wrong(value)):
                    shown = ", ".join(sorted(map(str, got))) if isinstance(got, set) else got
                    yield Problem(path_of(place), shown, f"allowed: {allowed}")


_MESSAGES: Final = {
    "missing": "required",
    "extra_forbidden": "no such field",
    "string_type": "allowed: a text (quote a number, on and true)",
}
_QUANTITIES: Final = frozenset({"limits", "requests", "sizeLimit", "divisor", "overhead"})
"""Fields that an API server takes numbers for, too."""


def _values(node: Any, place: Location = (), above: str = "") -> Iterator[tuple[Location, set[str], Any]]:
    """Every value below ``node``: its place, by which names of fields rules know it, and itself."""
    for name, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        here, entry = (*place, name), isinstance(name, int)
        if above in ("labels", "matchLabels", "nodeSelector", "annotations"):  # whose keys are the user's
            yield here, {"a key"}, name
            yield here, {f"{above}.*"}, value
            continue
        yield here, {f"{above}[]"} if entry else {str(name), f"{above}.{name}"}, value
        yield from _values(value, here, above if entry else str(name))


def _text(pattern: str) -> Callable[[Any], Any]:
    return lambda value: value if isinstance(value, str) and re.fullmatch(pattern, value) is None else ""


def _words(*words: str) -> tuple[Callable[[Any], Any], str]:
    return lambda value: value if value not in words else "", ", ".join(words)


def _number(low: int, high: int) -> tuple[Callable[[Any], Any], str]:
    return lambda value: "" if low <= value <= high else str(value), f"{low} to {high}"


def _uneven(resources: Mapping[str, Any]) -> set[str]:
    """Resources whose request is above the limit, and devices whose limit is no whole number or not the request."""
    requests, limits = (
        {name: quantity(str(value)) for name, value in (resources.get(kind) or {}).items()}
        for kind in ("requests", "limits")
    )
    above = {name for name in requests.keys() & limits.keys() if requests[name] > limits[name]}
    return above | {
        each
        for each in {*requests, *limits}
        if "/" in each and (limits.get(each, 0.5) % 1 or requests.get(each, limits[each]) != limits[each])
    }


_NAME: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_WORD: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_IN_WORDS: Final = "up to 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends"

_RULES: Final[tuple[tuple[tuple[str, ...], Callable[[Any], Any], str], ...]] = (
    (
        ("a key", "tolerations.key"),
        _text(rf"((?=[^/]{{1,253}}/){_NAME}(\.{_NAME})*/)?(?=[^/]{{1,63}}$){_WORD}"),
        f"{_IN_WORDS}; a domain and '/' may stand before them",
    ),
    (
        ("labels.*", "matchLabels.*", "nodeSelector.*", "tolerations.value"),
        _text(rf"(?=.{{0,63}}$)({_WORD})?"),
        _IN_WORDS,
    ),
    (
        ("containers.name", "initContainers.name", "volumes.name"),
        _text(rf"(?=.{{1,63}}$){_NAME}"),
        "up to 63 lower-case letters, digits and '-', with a letter or digit at both ends",
    ),
    (
        ("serviceAccountName", "priorityClassName", "runtimeClassName"),
        _text(rf"(?=.{{1,253}}$){_NAME}(\.{_NAME})*"),
        "a name of lower-case letters, digits, '-' and '.'",
    ),
    (("tolerations.effect",), *_words("NoSchedule", "PreferNoSchedule", "NoExecute", "")),
    (("tolerations.operator",), *_words("Exists", "Equal")),
    (("matchExpressions.operator",), *_words("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")),
    (("whenUnsatisfiable",), *_words("DoNotSchedule", "ScheduleAnyway")),
    (("imagePullPolicy",), *_words("Always", "IfNotPresent", "Never")),
    (("dnsPolicy",), *_words("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")),
    (("seccompProfile.type",), *_words("RuntimeDefault", "Unconfined", "Localhost")),
    (("mountPropagation",), *_words("None", "HostToContainer", "Bidirectional")),
    (("protocol",), *_words("TCP", "UDP", "SCTP")),
    (
        ("ports.name",),
        _text(rf"(?=.{{1,15}}$)(?=.*[a-z])(?!.*--){_NAME}"),
        "up to 15 lower-case letters, digits and '-'",
    ),
    (("env.name",), _text(r"[ -<>-~]+"), "ASCII without '='"),
    (("image",), _text(r"\S(.*\S)?"), "a name without blanks at its ends"),
    (("subPath",), _text(r"(?!/)(?!(.*/)?\.\.(/|$)).*"), "a path without '/' at its start and without '..'"),
    (("containerPort", "hostPort"), *_number(1, 65_535)),
    (("runAsUser", "runAsGroup", "fsGroup"), *_number(0, 2**31 - 1)),
    (("activeDeadlineSeconds", "maxSkew"), *_number(1, 2**31 - 1)),
    (("weight",), *_number(1, 100)),
    (("defaultMode",), *_number(0, 0o777)),
    (("volumes[]",), lambda it: ", ".join(sorted(it.keys() - {"name"})) if len(it) > 2 else "", "one source"),
    (("valueFrom",), lambda it: "" if len(it) == 1 else ", ".join(it) or "none", "exactly one source"),
    (
        ("livenessProbe", "readinessProbe", "startupProbe", "preStop", "postStart"),
        lambda it: (
            "" if len(it.keys() & {"exec", "grpc", "httpGet", "sleep", "tcpSocket"}) == 1 else ", ".join(it) or "none"
        ),
        "exactly one of exec, grpc, httpGet, sleep, tcpSocket",
    ),
    (("env[]",), lambda it: it.get("value") and "valueFrom" in it and it, "value or valueFrom, not both"),
    (
        ("tolerations[]",),
        lambda it: bool(it.get("value") if it.get("operator") == "Exists" else not it.get("key")) and it,
        "operator Exists without a value, or Equal with a key",
    ),
    (
        ("tolerations[]",),
        lambda it: "tolerationSeconds" in it and it.get("effect") != "NoExecute" and it,
        "tolerationSeconds only with effect NoExecute",
    ),
    (
        ("matchExpressions[]",),
        lambda it: bool(it.get("values")) == (it.get("operator") in ("Exists", "DoesNotExist")) and it,
        "values with In, NotIn, Gt and Lt, none with Exists and DoesNotExist",
    ),
    (
        ("limits", "requests"),
        lambda it: {name for name, value in it.items() if re.fullmatch(QUANTITY_PATTERN, str(value)) is None},
        'Kubernetes quantities from 0 upwards, such as "500m", "2", "4Gi"',
    ),
    (
        ("limits", "requests"),
        lambda it: {
            name for name in it if re.fullmatch("cpu|memory|ephemeral-storage|hugepages-.+|.+/.+", name) is None
        },
        "cpu, memory, ephemeral-storage, and names with a domain, such as nvidia.com/gpu",
    ),
    (
        ("resources",),
        _uneven,
        "requests up to their limits; of a device a whole number as the limit, and the same or nothing as the request",
    ),
    (
        ("spec",),
        lambda it: (
            {each["name"] for each in it.get("initContainers") or ()} & {each["name"] for each in it["containers"]}
        ),
        "a name for one container only",
    ),
    (
        ("spec",),
        lambda it: (
            {
                mount["name"]
                for each in [*(it.get("initContainers") or ()), *it["containers"]]
                for mount in each.get("volumeMounts") or ()
            }
            - {each["name"] for each in it["volumes"]}
        ),
        "volumeMounts by the names of the pod's volumes",
    ),
)
"""Fields, what is wrong with a value there (nothing, where it is right), and what is allowed. A field is known by its name, by
that and the one above it, and an entry of a list or of labels by ``[]`` or ``.*`` after the list's."""
