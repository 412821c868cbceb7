"""The twin as orchestrator: its inventory over HTTP."""

from __future__ import annotations

import requests

from controlplane.adapters.orchestrators import wire
from controlplane.adapters.orchestrators.deadline import BoundedCall
from controlplane.domain.fleet import Inventory
from controlplane.ports import Unavailable

ANSWER_MAX = 16 << 20
"""Bytes that are read of one answer; a thousand instances need about 0.3 MB."""


class TwinOrchestrator:
    """The orchestrator port over `GET <url>/inventory`.

    `timeout_s` bounds the whole call: connecting, waiting and a trickling body. No
    redirects are followed and no proxy or netrc of the environment is used.
    """

    def __init__(self, url: str, timeout_s: float = 1.5) -> None:
        self._url = url.rstrip("/") + "/inventory"
        self._timeout_s = timeout_s
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers["connection"] = "close"  # one question each cycle; no stale connection to meet
        self._ask = BoundedCall(self._fetch, timeout_s)

    def inventory(self) -> Inventory:
        """Everything that exists. Raises Unavailable."""
        try:
            return wire.inventory(self._ask())
        except (TimeoutError, OSError) as error:  # requests' errors are OSErrors
            raise Unavailable(f"{self._url}: {_words(error)}") from error
        except Unavailable as error:
            raise Unavailable(f"{self._url}: {error}") from error

    def _fetch(self) -> bytes:
        body = bytearray()
        with self._session.get(
            self._url, timeout=self._timeout_s, stream=True, allow_redirects=False
        ) as response:
            if response.status_code != requests.codes.ok:
                raise Unavailable(f"answered {response.status_code}")
            for part in response.iter_content(1 << 16):
                body += part
                if len(body) > ANSWER_MAX:
                    raise Unavailable(f"the answer is larger than {ANSWER_MAX} bytes")
        return bytes(body)


def _words(error: OSError) -> str:
    """A few words: the library's own text repeats the URL and names its internals."""
    if isinstance(error, (requests.Timeout, TimeoutError)):
        return "no whole answer in time"
    if isinstance(error, (requests.ConnectionError, requests.exceptions.ChunkedEncodingError)):
        return "cannot be reached, or broke off"
    return type(error).__name__
