"""The twin as orchestrator: its inventory and its orders over HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import requests

from controlplane.adapters.orchestrators import wire
from controlplane.adapters.orchestrators.deadline import BoundedCall
from controlplane.domain.fleet import Inventory
from controlplane.domain.ids import ActionId, InstanceId, PoolName
from controlplane.domain.observation import Reach
from controlplane.ports import Order, OutcomeUnknown, Refused, Unavailable

ANSWER_MAX = 16 << 20
"""Bytes that are read of one answer; a thousand instances need about 0.3 MB."""

SAID_MAX = 300
"""Characters of a refusal that are kept."""


class TwinOrchestrator:
    """The orchestrator port over `GET <url>/inventory`, `PUT <url>/instances` and `PUT <url>/adopt`.

    `timeout_s` bounds a whole call: connecting, waiting and a trickling body. No
    redirects are followed and no proxy or netrc of the environment is used.
    """

    def __init__(self, url: str, timeout_s: float = 1.5) -> None:
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers["connection"] = "close"  # one question each cycle; no stale connection to meet
        self._ask = BoundedCall(self._inventory, timeout_s)

    @property
    def reach(self) -> Reach:
        """Each instance can be asked for."""
        return Reach.INSTANCES

    def inventory(self) -> Inventory:
        """Everything that exists. Raises Unavailable."""
        try:
            return wire.inventory(self._ask())
        except (TimeoutError, OSError) as error:  # requests' errors are OSErrors
            raise Unavailable(f"{self._url}/inventory: {_words(error)}") from error
        except Unavailable as error:
            raise Unavailable(f"{self._url}/inventory: {error}") from error

    def ensure(self, order: Order) -> None:
        """Ask for a level of life. Accepted is not reached: that is seen in the inventory."""
        self._put("instances", wire.order(order))

    def adopt(self, action: ActionId, instance: InstanceId) -> None:
        """Ask to be its manager."""
        self._put("adopt", {"action_id": str(action), "instance_id": instance})

    def set_instances(self, action: ActionId, pool: PoolName, count: int) -> None:
        """Refused: each instance is asked for by itself."""
        raise Refused(f"{action}: {pool} is no number of {count} here; each instance is asked for by itself")

    def _inventory(self) -> bytes:
        with self._session.get(
            f"{self._url}/inventory", timeout=self._timeout_s, stream=True, allow_redirects=False
        ) as response:
            if response.status_code != requests.codes.ok:
                raise Unavailable(f"answered {response.status_code}")
            return _body(response)

    def _put(self, path: str, body: Mapping[str, Any]) -> None:
        call = BoundedCall(lambda: self._sent(path, body), self._timeout_s)
        where = f"{self._url}/{path}"
        try:
            status, said = call()
        except requests.exceptions.ConnectTimeout as error:
            raise Unavailable(f"{where}: cannot be reached") from error
        except (TimeoutError, OSError) as error:
            if _never_left(error):
                raise Unavailable(f"{where}: cannot be reached") from error
            raise OutcomeUnknown(f"{where}: {_words(error)}") from error
        if status >= requests.codes.server_error:  # it broke while it carried the order out, or after
            raise OutcomeUnknown(f"{where}: answered {status}: {_reason(said)}")
        if status != requests.codes.ok:
            raise Refused(f"{where}: answered {status}: {_reason(said)}")

    def _sent(self, path: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
        with self._session.put(
            f"{self._url}/{path}", json=body, timeout=self._timeout_s, stream=True, allow_redirects=False
        ) as response:
            return response.status_code, _body(response)


def _body(response: requests.Response) -> bytes:
    body = bytearray()
    for part in response.iter_content(1 << 16):
        body += part
        if len(body) > ANSWER_MAX:
            raise Unavailable(f"the answer is larger than {ANSWER_MAX} bytes")
    return bytes(body)


def _never_left(error: Exception) -> bool:
    """Whether nobody was there to take the order: only then it is sure that nothing happened."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return True
        nested = cause.args[0] if cause.args and isinstance(cause.args[0], BaseException) else None
        cause = getattr(nested, "reason", None) or nested or cause.__cause__ or cause.__context__
    return False


def _reason(said: bytes) -> str:
    """The far side's own words, as far as it sent any."""
    try:
        found = json.loads(said)
    except ValueError:
        return "without a reason"
    text = found.get("error") if isinstance(found, dict) else None
    return text[:SAID_MAX] if isinstance(text, str) and text.isprintable() else "without a reason"


def _words(error: OSError) -> str:
    """A few words: the library's own text repeats the URL and names its internals."""
    if isinstance(error, (requests.Timeout, TimeoutError)):
        return "no whole answer in time"
    if isinstance(error, (requests.ConnectionError, requests.exceptions.ChunkedEncodingError)):
        return "cannot be reached, or broke off"
    return type(error).__name__
