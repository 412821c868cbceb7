"""`POST /alerts`: Alertmanager's webhook, by which pages come onto the record.

What is on record is answered with 200, and nothing else is: Alertmanager tries again after a 5xx, so
a database that is away loses no page. Refusals are one sentence each; none shows a secret.
"""

from __future__ import annotations

import hmac
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from controlplane.adapters.alertmanager.notification import Malformed, read_notification
from controlplane.ports import InvalidConfig, Notified, Pages, PortError
from controlplane.settings import SecretRef

BODY_MAX = 1 << 20
"""Bytes of a notification. Alertmanager groups by pool and alert, so a real one is a few kilobytes."""

_UNREAD_MAX = 4 * BODY_MAX
"""As much of a refused body is read and dropped: a connection closed on unread bytes loses the answer."""

_CHUNK = 1 << 16
_SCHEME = "bearer "

log = logging.getLogger(__name__)

HEADERS: Mapping[HTTPStatus, tuple[tuple[str, str], ...]] = {
    HTTPStatus.UNAUTHORIZED: (("www-authenticate", "Bearer"),),
    HTTPStatus.METHOD_NOT_ALLOWED: (("allow", "POST"),),
}
"""What else belongs to an answer of this status."""


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, said: str) -> None:
        super().__init__(said)
        self.status = status


@dataclass(slots=True)
class _Body:
    """What a caller says it sends. `left` -1: it does not say how much."""

    stream: Any
    left: int

    def read(self) -> bytes:
        """All of it, and not a byte more. Raises _Refused where it is too long, ends early or stops."""
        if self.left < 0:
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "Content-Length is required, and no chunks")
        if self.left > BODY_MAX:
            raise _Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the body: {self.left} bytes, allowed: at most {BODY_MAX}",
            )
        said, self.left = self.left, 0
        try:
            found: bytes = self.stream.read(said)
        except OSError:
            raise _Refused(HTTPStatus.REQUEST_TIMEOUT, "the body stopped coming") from None
        if len(found) < said:
            raise _Refused(HTTPStatus.BAD_REQUEST, f"the body ended after {len(found)} of {said} bytes")
        return found

    def drop(self) -> None:
        """Read what is unread, so far as that is reasonable."""
        unread, self.left = min(self.left, _UNREAD_MAX), 0
        try:
            while unread > 0 and (got := len(self.stream.read(min(unread, _CHUNK)))):
                unread -= got
        except OSError:
            return  # the caller went, or stopped: it waits for no answer


class Webhook:
    """Takes notifications of callers that know the token, and keeps them.

    `token` is read anew at each, since files rotate. `paged` is told of every page that began or
    ended; `now` answers epoch seconds. `cluster`: whose an alert is that names none.
    """

    def __init__(
        self,
        token: SecretRef,
        pages: Pages,
        cluster: str,
        now: Callable[[], float],
        paged: Callable[[Notified], None],
    ) -> None:
        self._token = token
        self._pages = pages
        self._cluster = cluster
        self._now = now
        self._paged = paged
        self._turn = threading.Lock()  # callers are many threads, the record and the counts are one

    def answer(self, environ: Mapping[str, Any]) -> tuple[HTTPStatus, str]:
        """Status and one sentence for one request."""
        body = _Body(environ["wsgi.input"], _length(environ))
        try:
            return HTTPStatus.OK, self._taken(environ, body)
        except _Refused as refused:
            body.drop()
            return refused.status, str(refused)

    def _taken(self, environ: Mapping[str, Any], body: _Body) -> str:
        if environ.get("REQUEST_METHOD") != "POST":
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, "allowed: POST")
        self._require_token(environ.get("HTTP_AUTHORIZATION", ""))
        try:
            notified = read_notification(body.read(), self._cluster, self._now())
        except Malformed as error:
            log.warning("a notification was refused: %s", error)
            raise _Refused(HTTPStatus.BAD_REQUEST, str(error)) from None
        return self._kept(notified)

    def _require_token(self, header: str) -> None:
        """In constant time, and without saying whether the token is missing or wrong."""
        try:
            token = self._token.read()
        except InvalidConfig as error:
            log.error("the webhook can let nobody in: %s", error)  # noqa: TRY400 - the place says it all
            raise _Refused(
                HTTPStatus.SERVICE_UNAVAILABLE, "the webhook's token cannot be read here; see the log"
            ) from None
        shown = header[len(_SCHEME) :] if header.lower().startswith(_SCHEME) else ""
        # WSGI hands headers over as Latin-1, whatever the caller meant: so these are the bytes as sent.
        if not hmac.compare_digest(shown.strip().encode("latin-1", "replace"), token.encode()):
            raise _Refused(HTTPStatus.UNAUTHORIZED, "a bearer token that is known here is required")

    def _kept(self, notified: Sequence[Notified]) -> str:
        try:
            with self._turn:
                for each in self._pages.keep(notified, self._now()):
                    self._paged(each)
        except PortError as error:
            log.warning("a notification could not be kept, Alertmanager will send it again: %s", error)
            raise _Refused(
                HTTPStatus.SERVICE_UNAVAILABLE, "the record cannot be written now; send it again"
            ) from None
        return f"{len(notified)} kept"


def _length(environ: Mapping[str, Any]) -> int:
    """Bytes that are said to come; -1 where the caller does not say so in plain digits."""
    said = environ.get("CONTENT_LENGTH", "")
    plain = said.isascii() and said.isdecimal() and len(said) <= 18
    return int(said) if plain and "HTTP_TRANSFER_ENCODING" not in environ else -1
