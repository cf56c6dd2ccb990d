"""Which type an answer of the API server becomes, for the answers that real servers have been seen to give."""

from __future__ import annotations

from typing import Any

import pytest
from rljob_operator.kube.apiserver.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NamespaceTerminating,
    NotFound,
    PodSecurityViolated,
    QuotaExceeded,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    error_of,
)

QUOTA = 'pods "a" is forbidden: exceeded quota: team, requested: pods=1, used: pods=2, limited: pods=2'
UNCOUNTED = 'pods "a" is forbidden: status unknown for quota: team, resources: pods'
NO_LIMITS = 'pods "a" is forbidden: failed quota: team: must specify limits.cpu for: main'
SECURITY = 'pods "a" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
GOING = {"causes": [{"reason": "NamespaceTerminating", "message": "namespace a is being terminated"}]}

CASES: list[tuple[int, dict[str, Any], type[ApiError]]] = [
    (400, {"reason": "BadRequest"}, Invalid),
    (422, {"reason": "Invalid"}, Invalid),
    (413, {"reason": "RequestEntityTooLarge"}, Invalid),
    (401, {"reason": "Unauthorized"}, Unauthorized),
    (403, {"reason": "Forbidden", "message": 'User "a" cannot get resource "pods"'}, Forbidden),
    (403, {"reason": "Forbidden", "message": QUOTA}, QuotaExceeded),
    (403, {"reason": "Forbidden", "message": UNCOUNTED}, QuotaExceeded),
    (403, {"reason": "Forbidden", "message": NO_LIMITS}, Forbidden),
    (403, {"reason": "Forbidden", "message": SECURITY}, PodSecurityViolated),
    (403, {"reason": "Forbidden", "details": GOING}, NamespaceTerminating),
    (404, {"reason": "NotFound"}, NotFound),
    (405, {"reason": "MethodNotAllowed"}, ApiError),
    (409, {"reason": "Conflict"}, Conflict),
    (409, {"reason": "AlreadyExists"}, AlreadyExists),
    (410, {"reason": "Expired"}, Gone),
    (429, {"reason": "TooManyRequests"}, TooManyRequests),
    (500, {"reason": "InternalError"}, Unavailable),
    (503, {"reason": "ServiceUnavailable"}, Unavailable),
    (504, {"reason": "Timeout"}, Unavailable),
    (502, {}, Unavailable),
]


@pytest.mark.parametrize(("code", "status", "kind"), CASES)
def test_each_answer_has_its_type(code: int, status: dict[str, Any], kind: type[ApiError]) -> None:
    error = error_of(code, status, None)
    assert type(error) is kind
    assert error.code == code
    assert str(error) == status.get("message", status.get("reason", f"HTTP {code}"))


@pytest.mark.parametrize(
    ("header", "details", "seconds"),
    [
        ("3", {}, 3.0),
        (None, {"retryAfterSeconds": 2}, 2.0),
        ("1", {"retryAfterSeconds": 5}, 1.0),
        (None, {}, None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", {}, None),
        ("-1", {}, None),
        ("inf", {}, None),
        ("nan", {}, None),
    ],
)
def test_how_long_to_wait_is_taken_from_the_header_or_the_body(header: Any, details: Any, seconds: Any) -> None:
    assert error_of(429, {"details": details}, header).retry_after_seconds == seconds


@pytest.mark.parametrize("details", [None, [], "x", {"causes": None}, {"causes": ["x"]}])
def test_a_body_that_is_no_status_is_no_fault_of_ours(details: Any) -> None:
    assert type(error_of(403, {"details": details, "message": None, "reason": None}, None)) is Forbidden
