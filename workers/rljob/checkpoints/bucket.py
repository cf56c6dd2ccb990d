"""A bucket of S3, or of a server with its protocol, through ``obstore``: bounded in time, and its problems in a sentence.

Credentials and server come from the variables that every program of AWS reads: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL, AWS_CA_BUNDLE, or the identity that a pod or machine has.
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rljob.checkpoints.names import StorageNotInstalled, StorageProblem

if TYPE_CHECKING:
    from obstore.store import S3Store

PIECE_BYTES: Final = 8 << 20
"""Objects are sent and fetched in pieces of this size, each within `REQUEST_SECONDS`: a slow network does not make them fail."""
REQUEST_SECONDS: Final = 30
RETRY_SECONDS: Final = 20
"""A request that fails in a way that may pass is sent again, later each time, so long after the first."""

_CONNECT_SECONDS: Final = 5
_AT_ONCE: Final = 2
_RETRY: Final = {
    "max_retries": 8,
    "retry_timeout": timedelta(seconds=RETRY_SECONDS),
    "backoff": {"init_backoff": timedelta(seconds=0.5), "max_backoff": timedelta(seconds=5), "base": 2},
}
_REFUSED: Final = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "XAdminUserNotFound")
_ELSEWHERE: Final = ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException")
_METADATA_SERVICE: Final = "/latest/api/token"
_T = TypeVar("_T")


class NoObject(Exception):
    """There is no object of that key."""


@dataclass(eq=False)
class Bucket:
    """The bucket ``name``. ``endpoint`` is the URL of a server that is not AWS's own; empty takes it from the environment.

    Keys have no slash at either end. Safe to use from several threads. Every method raises StorageProblem.
    """

    name: str
    endpoint: str = ""

    def uri(self, key: str) -> str:
        """``s3://bucket/key``."""
        return f"s3://{self.name}/{key}" if key else f"s3://{self.name}"

    def keys(self, below: str) -> list[str]:
        """The keys of all objects below a key, as if it were a folder."""
        store = self._store

        def listed() -> list[str]:
            return [str(each["path"]) for page in store.list(below or None) for each in page]

        return self._asked("list", listed)

    def put(self, key: str, content: bytes) -> None:
        """Write an object; until it is whole, the one that was there stays."""
        store = self._store
        self._asked(
            "write",
            lambda: store.put(
                key,
                content,
                use_multipart=len(content) > PIECE_BYTES,
                chunk_size=PIECE_BYTES,
                max_concurrency=_AT_ONCE,
            ),
        )

    def create(self, key: str) -> bool:
        """Write an empty object unless there is one; False where there is."""
        from obstore.exceptions import AlreadyExistsError

        store = self._store

        def created() -> bool:
            try:
                store.put(key, b"", mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

        return self._asked("write", created)

    def pieces(self, key: str) -> Iterator[bytes]:
        """The content of an object. Raises NoObject."""
        store, start, size = self._store, 0, 1
        while start < size:
            piece, size = self._asked("read", lambda begin=start: _piece(store, key, begin))  # type: ignore[misc]
            start += len(piece)
            yield piece

    def delete(self, keys: list[str]) -> None:
        """Remove objects; missing ones are ignored."""
        store = self._store
        self._asked("delete", lambda: store.delete(keys))

    @cached_property
    def _store(self) -> "S3Store":
        try:
            from obstore.exceptions import BaseError
            from obstore.store import S3Store
        except ImportError:
            raise StorageNotInstalled(
                f"{self.uri('')} needs the package obstore, which this install lacks: pip install 'rljob[s3]'"
            ) from None
        endpoint = self._endpoint()
        options: dict[str, Any] = {
            "allow_http": endpoint.startswith("http://"),
            "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
            "timeout": timedelta(seconds=REQUEST_SECONDS),
        }
        authorities = os.environ.get("AWS_CA_BUNDLE")
        try:
            if authorities:
                options["root_certificate"] = Path(authorities).read_bytes()
            config: Any = {"aws_endpoint_url_s3": endpoint} if endpoint else {}
            return S3Store(self.name, config=config, client_options=options, retry_config=_RETRY)  # type: ignore[arg-type]
        except OSError as error:
            raise StorageProblem(f"AWS_CA_BUNDLE: {authorities} can't be read: {error.strerror}") from None
        except (BaseError, ValueError) as error:
            raise StorageProblem(f"{self.uri('')} can't be set up: {type(error).__name__}") from None

    def _endpoint(self) -> str:
        variables = (os.environ.get(name, "") for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"))
        return self.endpoint or next(filter(None, variables), "")

    def _asked(self, what: str, request: Callable[[], _T]) -> _T:
        from obstore.exceptions import BaseError

        try:
            return request()
        except FileNotFoundError as error:
            if "NoSuchBucket" not in str(error):
                raise NoObject from None
            raise StorageProblem(self._sentence(str(error), what)) from None
        except (BaseError, OSError, ValueError) as error:
            raise StorageProblem(self._sentence(str(error), what)) from None

    def _sentence(self, text: str, what: str) -> str:
        """What an error means. Its own text holds what the server was sent and what it answered, and is not passed on."""
        server = self._endpoint() or "AWS"
        code_found = re.search(r"<Code>([A-Za-z0-9]{1,80})</Code>", text)
        status_found = re.search(r"status code: ([0-9]{3})", text)
        code = code_found[1] if code_found else ""
        answer = " ".join(filter(None, (status_found[1] if status_found else "", code)))
        if _METADATA_SERVICE in text:
            return (
                f"there are no credentials for {self.uri('')}: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are expected"
            )
        if code == "NoSuchBucket":
            return f"there is no bucket {self.name} at {server}; create it, or name another one"
        if code in _REFUSED or answer == "401":
            return (
                f"{server} does not accept the credentials for {self.uri('')} ({answer}); check AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY"
            )
        if code in _ELSEWHERE or answer.startswith("301"):
            return f"{self.uri('')} is in another region ({answer}); set AWS_REGION to its own"
        if answer.startswith("403"):
            return f"the credentials may not {what} in {self.uri('')} ({answer}); give them the permission to"
        if answer:
            return f"{server} could not {what} in {self.uri('')}: it answered {answer}"
        reason = "can't be reached" if "Connect" in text else "did not answer in time"
        return f"{server} {reason}, so nothing could be {_DONE[what]} in {self.uri('')}"


_DONE: Final = {"list": "listed", "read": "read", "write": "written", "delete": "deleted"}


def _piece(store: "S3Store", key: str, start: int) -> tuple[bytes, int]:
    """A piece of an object, and the size of the whole."""
    found = store.get(key, options={"range": (start, start + PIECE_BYTES)})
    return bytes(found.bytes()), int(found.meta["size"])
