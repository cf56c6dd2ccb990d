"""What an API server can refuse, as types: what to do next depends on the type, what to tell the user is in the message."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any


class ApiError(Exception):
    """A call that brought no result. ``str()`` is the server's own message where it sent one.

    ``code`` is the HTTP status (0 where there was no answer), ``reason`` the server's name for it, ``details`` the part of its
    answer that names fields.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        reason: str = "",
        details: Mapping[str, Any] | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details: Mapping[str, Any] = details or {}
        self.retry_after_seconds = retry_after_seconds
        """How long the server asks to wait before the next try; None where it says nothing."""


class Invalid(ApiError):
    """The object or the request can't be accepted as it is (400, 413, 422): trying again changes nothing."""


class Unauthorized(ApiError):
    """The credentials are not, or no longer, accepted (401)."""


class Forbidden(ApiError):
    """The rights, or an admission plugin, do not allow it (403)."""


class LacksRight(Forbidden):
    """The login lacks the right: nobody has looked at the object itself."""


class QuotaExceeded(Forbidden):
    """A ResourceQuota is used up: this passes when something else ends."""


class PodSecurityViolated(Forbidden):
    """The namespace's Pod Security level does not allow such a pod."""


class NamespaceTerminating(Forbidden):
    """Nothing can be created any more in a namespace that is being deleted."""


class NotFound(ApiError):
    """There is no such object (404)."""


class Conflict(ApiError):
    """The object has changed since it was read, or is another one than expected (409)."""


class AlreadyExists(ApiError):
    """The name is taken (409 when creating)."""


class Gone(ApiError):
    """The resource version to continue from is no longer known (410): list anew."""


class TooManyRequests(ApiError):
    """The server asks for patience (429)."""


class Unavailable(ApiError):
    """No answer in time, no connection, or a fault of the server (5xx): the call may or may not have had its effect."""


class NotLeader(Exception):
    """This process does not hold the Lease, or can't be sure that it still does: it must change nothing."""


def is_refusal(problem: Exception) -> bool:
    """Whether it is about what was asked for, or a defect: told, and tried again after a pause that grows. Else there was no
    answer, or another client was faster or leads, and the caller asks again soon."""
    answered = not isinstance(problem, ApiError) or problem.code != 0
    return answered and not isinstance(problem, NotLeader | Conflict | TooManyRequests | Unauthorized)


def error_of(code: int, status: Mapping[str, Any], retry_after: str | None) -> ApiError:
    """The error that an answer stands for. ``status`` is its body, a Status object or whatever a proxy has sent instead."""
    reason = str(status.get("reason") or "")
    message = str(status.get("message") or reason or f"HTTP {code}")
    details = status.get("details")
    details = details if isinstance(details, dict) else {}
    kind = _kind(code, reason, message, details)
    return kind(message, code=code, reason=reason, details=details, retry_after_seconds=_seconds(retry_after, details))


def _kind(code: int, reason: str, message: str, details: Mapping[str, Any]) -> type[ApiError]:
    kinds: dict[int, type[ApiError]] = {
        400: Invalid,
        401: Unauthorized,
        403: _forbidden(message, details),
        404: NotFound,
        409: AlreadyExists if reason == "AlreadyExists" else Conflict,
        410: Gone,
        413: Invalid,
        422: Invalid,
        429: TooManyRequests,
    }
    return kinds.get(code, Unavailable if code >= 500 else ApiError)


def _forbidden(message: str, details: Mapping[str, Any]) -> type[Forbidden]:
    """All refusals of admission share one code and reason; the plugins are known by their messages, which are stable."""
    causes = details.get("causes")
    if isinstance(causes, list) and any(
        isinstance(cause, dict) and cause.get("reason") == "NamespaceTerminating" for cause in causes
    ):
        return NamespaceTerminating
    if (
        "exceeded quota:" in message or "status unknown for quota" in message
    ):  # the second: what is used is not counted yet
        return QuotaExceeded
    lacks_right = 'forbidden: User "' in message  # which no admission plugin says
    return PodSecurityViolated if "violates PodSecurity" in message else LacksRight if lacks_right else Forbidden


def _seconds(header: str | None, details: Mapping[str, Any]) -> float | None:
    """Retry-After as seconds. A date, which HTTP allows there too, is no number and counts as none."""
    for value in (header, details.get("retryAfterSeconds")):
        with suppress(TypeError, ValueError):
            if 0.0 <= float(value) < 3600.0:  # type: ignore[arg-type]
                return float(value)  # type: ignore[arg-type]
    return None
