"""A bucket of S3, or of a server with its protocol, through ``obstore``: bounded in time, and its problems in a sentence.

Credentials and server come from the variables that every program of AWS reads: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL, AWS_CA_BUNDLE, or the identity that a pod or machine has.
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, partial
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
        return self._asked("list", lambda store: [str(it["path"]) for page in store.list(below or None) for it in page])

    def put(self, key: str, content: bytes) -> None:
        """Write an object; until it is whole, the one that was there stays."""
        self._asked(
            "write",
            lambda store: store.put(
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

        def created(store: "S3Store") -> bool:
            try:
                store.put(key, b"", mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

        return self._asked("write", created)

    def pieces(self, key: str) -> Iterator[bytes]:
        """The content of an object. Raises NoObject."""
        start, size = 0, 1
        while start < size:
            piece, size = self._asked("read", partial(_piece, key, start))
            start += len(piece)
            yield piece

    def delete(self, keys: list[str]) -> None:
        """Remove objects; missing ones are ignored."""
        self._asked("delete", lambda store: store.delete(keys))

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

    def _asked(self, what: str, request: "Callable[[S3Store], _T]") -> _T:
        store = self._store
        from obstore.exceptions import BaseError

        try:
            return request(store)
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
        answer = " ".join(found[1] for found in (status_found, code_found) if found)
        here, keys = self.uri(""), "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        silent = "can't be reached" if "Connect" in text else "did not answer in time"
        meanings = (
            (_METADATA_SERVICE in text, f"there are no credentials for {here}: {keys} are expected"),
            (
                code == "NoSuchBucket",
                f"there is no bucket {self.name} at {server}; create it, or name another one",
            ),
            (
                code in _REFUSED or answer == "401",
                f"{server} does not accept the credentials for {here} ({answer}); check {keys}",
            ),
            (
                code in _ELSEWHERE or answer.startswith("301"),
                f"{here} is in another region ({answer}); set AWS_REGION to its own",
            ),
            (
                answer.startswith("403"),
                f"the credentials may not {what} in {here} ({answer}); give them the permission to",
            ),
            (answer, f"{server} could not {what} in {here}: it answered {answer}"),
            (True, f"{server} {silent}, so nothing could be {_DONE[what]} in {here}"),
        )
        return next(sentence for applies, sentence in meanings if applies)


_DONE: Final = {"list": "listed", "read": "read", "write": "written", "delete": "deleted"}


def _piece(key: str, start: int, store: "S3Store") -> tuple[bytes, int]:
    """A piece of an object, and the size of the whole."""
    found = store.get(key, options={"range": (start, start + PIECE_BYTES)})
    return bytes(found.bytes()), int(found.meta["size"])
