"""The learner's telemetry server as its controller uses it: read its status, ask it for a checkpoint.

A thread of its own does the talking, so a learner that is wedged or slow never holds up the control loop. Whatever is not a
whole JSON object of a sane size that arrived in time is no answer; it is never taken for zeros.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass

from rljob.api.learner_status import LearnerStatus
from rljob.threads import SupervisedThread

_PERIOD_SECONDS = 0.5
_TIMEOUT_SECONDS = 2.0
_LARGEST_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """What the learner said last, and why the newest attempt brought nothing; empty where it did."""

    status: LearnerStatus | None = None
    problem: str = "the learner has not announced itself yet"


class NoAnswer(Exception):
    """Why a member gives no answer."""


class LearnerStatusClient:
    """Asks at the address that ``url`` answers, which may be None while there is no learner, until closed.

    ``token``: the job's, which a request for a checkpoint carries."""

    def __init__(
        self,
        url: Callable[[], str | None],
        period_seconds: float = _PERIOD_SECONDS,
        now: Callable[[], float] = time.time,
        token: str = "",
    ) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._period_seconds = period_seconds
        self._now = now
        self._answer = Answer()
        self._wanted: float | None = None
        self._asked: tuple[str, float] | None = None
        self._stop = threading.Event()
        self._thread = SupervisedThread("learner-status", self._run, until=self._stop)
        self._thread.start()

    @property
    def answer(self) -> Answer:
        """What the newest attempt brought. Raises ``ThreadEnded`` where nobody asks any more, by a defect."""
        self._thread.check()
        return self._answer

    def want_checkpoint(self, since_seconds: float | None) -> None:
        """Have the learner write a checkpoint unless it has answered this request; None wants nothing."""
        self._wanted = since_seconds

    def close(self) -> None:
        """Stop asking."""
        self._stop.set()
        self._thread.close(timeout_seconds=_TIMEOUT_SECONDS + 1.0)

    def _run(self) -> None:
        while not self._stop.wait(self._period_seconds):
            url = self._url()
            if url is None:
                self._answer = Answer(self._answer.status)
                continue
            self._ask_for_checkpoint(url)
            taken = self._now()
            try:
                self._answer = Answer(LearnerStatus.answered(fetch(url), taken), "")
            except (NoAnswer, ValueError) as problem:
                self._answer = Answer(self._answer.status, f"learner: {problem}")

    def _ask_for_checkpoint(self, url: str) -> None:
        wanted = self._wanted
        if wanted is None or self._asked == (url, wanted):
            return
        body = json.dumps({"sinceUnix": wanted}).encode()
        try:
            request = urllib.request.Request(f"{url}/checkpoint", data=body, headers=self._headers)
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS):
                self._asked = (url, wanted)
        except (OSError, ValueError, http.client.HTTPException):
            pass  # asked again in the next round


def fetch(url: str, timeout_seconds: float = _TIMEOUT_SECONDS) -> bytes:
    """What the `/status` of the member at ``url`` says. Raises NoAnswer with the reason where it says nothing."""
    deadline = time.monotonic() + timeout_seconds
    body = b""
    try:
        with urllib.request.urlopen(f"{url}/status", timeout=timeout_seconds) as answer:
            while piece := answer.read1(65536):
                body += piece
                if len(body) > _LARGEST_BYTES:
                    raise NoAnswer(f"its status has more than {_LARGEST_BYTES:,} bytes")
                if time.monotonic() > deadline:
                    raise NoAnswer(f"its status took longer than {timeout_seconds:g} s")
    except urllib.error.HTTPError as error:
        raise NoAnswer(f"its status answers with HTTP {error.code}") from None
    except TimeoutError:
        raise NoAnswer(f"it has not answered within {timeout_seconds:g} s") from None
    except (OSError, ValueError, http.client.HTTPException) as error:  # ValueError: the address is none
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            raise NoAnswer(f"it has not answered within {timeout_seconds:g} s") from None
        raise NoAnswer(f"its status can't be read: {reason}") from None
    return body
