"""Prometheus' query API: all queries of a cycle at once, one deadline, and never an exception.

The session is prometheus-api-client's; its `custom_query` is not used, because it drops
warnings, retries with back-off and knows no deadline.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime

import requests
from prometheus_api_client import PrometheusConnect
from urllib3.util import Retry

from controlplane.adapters.prometheus.envelope import BadAnswer, Vector, parse
from controlplane.adapters.prometheus.lanes import Lane, LaneAdapter, LaneClosed
from controlplane.adapters.prometheus.secrets import Access, access
from controlplane.domain.readings import Cause
from controlplane.ports import InvalidConfig
from controlplane.settings import PrometheusSettings

MAX_BYTES = 64 * 1024 * 1024
"""More than a fleet of 10,000 instances answers; beyond it something is wrong."""

_CHUNK = 64 * 1024
_LANES = 8
_REMARKS = 20


@dataclass(frozen=True, slots=True)
class Answer:
    """A vector that came. `server_date`: the HTTP `Date` (epoch seconds, whole), None where absent;
    `wait_s`: seconds from sending to the whole body."""

    vector: Vector
    server_date: float | None
    wait_s: float

    @property
    def lag_s(self) -> float:
        """Age of the whole answer by the server's clock: more than a moment where a cache answered."""
        if self.server_date is None or not self.vector.samples:
            return 0.0
        return max(0.0, self.server_date - max(sample.at for sample in self.vector.samples))


@dataclass(frozen=True, slots=True)
class Failure:
    """A query that gave nothing, why, and what to tell people (free of secrets)."""

    cause: Cause
    detail: str


Result = Answer | Failure


class PrometheusClient:
    """One Prometheus, or whatever speaks its API. Safe to use from one thread at a time."""

    def __init__(self, settings: PrometheusSettings, max_bytes: int = MAX_BYTES) -> None:
        self._settings = settings
        self._max_bytes = max_bytes
        self._session = requests.Session()
        self._session.trust_env = False  # a .netrc would replace our Authorization header
        url = access(_without_secrets(settings)).url
        PrometheusConnect(url=url, session=self._session, retry=Retry(0), method="POST")
        for prefix in (url, "http://", "https://"):
            self._session.mount(prefix, LaneAdapter(_LANES))
        self._pool = ThreadPoolExecutor(_LANES, thread_name_prefix="prometheus")

    def close(self) -> None:
        """Give back threads and connections."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._session.close()

    def ask(self, queries: Mapping[str, str]) -> Mapping[str, Result]:
        """All queries (name to PromQL) at once; every one has its answer or its failure by the deadline.

        One query's failure takes nothing from another's answer. Nothing is asked again.
        """
        try:
            door = access(self._settings)
        except InvalidConfig as error:
            return dict.fromkeys(queries, Failure(Cause.QUERY_FAILED, str(error)))
        lanes = {name: Lane() for name in queries}
        futures = {
            name: self._pool.submit(self._one, door, lanes[name], promql) for name, promql in queries.items()
        }
        wait(futures.values(), timeout=self._total_s)
        return {name: self._collect(futures[name], lanes[name]) for name in queries}

    @property
    def _total_s(self) -> float:
        return min(self._settings.timeout_s, self._settings.deadline_s)

    def _collect(self, future: Future[Result], lane: Lane) -> Result:
        if future.done():
            return future.result()
        lane.shut()
        future.cancel()
        return Failure(Cause.QUERY_TIMEOUT, f"no whole answer within {self._total_s:g} s")

    def _one(self, door: Access, lane: Lane, promql: str) -> Result:
        try:
            with lane:
                return self._post(door, promql)
        except BadAnswer as error:
            return Failure(error.cause, door.scrub(str(error)))
        except LaneClosed:
            return Failure(Cause.QUERY_TIMEOUT, "broken off before it was sent")
        except Exception as error:  # noqa: BLE001  the port's promise: no library's exception crosses it
            return _failure(door, error)

    def _post(self, door: Access, promql: str) -> Answer:
        sent = time.monotonic()
        with self._session.post(
            f"{door.url}/api/v1/query",
            data={"query": promql, "timeout": f"{self._total_s:g}s"},  # no `time`: the server's now (B-054)
            headers=dict(door.headers),
            timeout=(self._total_s, self._total_s),
            allow_redirects=False,  # a redirect would carry the credentials elsewhere
            stream=True,
        ) as response:
            if response.is_redirect or 300 <= response.status_code < 400:
                raise BadAnswer(f"HTTP {response.status_code}, a redirect, which is not followed")
            vector = _shown(door, parse(response.status_code, self._body(response)))
            return Answer(vector, _date(response.headers.get("Date")), time.monotonic() - sent)

    def _body(self, response: requests.Response) -> bytes:
        body = bytearray()
        for chunk in response.iter_content(_CHUNK):
            body += chunk
            if len(body) > self._max_bytes:
                raise BadAnswer(f"an answer of more than {self._max_bytes} bytes")
        return bytes(body)


def _without_secrets(settings: PrometheusSettings) -> PrometheusSettings:
    """The settings as far as the URL goes: a token file that is late must not stop the start."""
    return PrometheusSettings(settings.url)


def _shown(door: Access, vector: Vector) -> Vector:
    """Remarks as fit for record and logs as errors are: masked, printable, short and few (B-190)."""
    warnings, notes = (tuple(map(door.scrub, said[:_REMARKS])) for said in (vector.warnings, vector.notes))
    return replace(vector, warnings=warnings, notes=notes)


def _failure(door: Access, error: BaseException) -> Failure:
    """Told by the innermost error: the outer ones repeat the address and our classes' names, and a
    read that times out within the body comes wrapped in a ConnectionError."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    cause = Cause.QUERY_TIMEOUT if isinstance(error, TimeoutError) else Cause.QUERY_FAILED
    return Failure(cause, door.scrub(f"{type(error).__name__}: {error}"))


def _date(header: str | None) -> float | None:
    try:
        return None if header is None else parsedate_to_datetime(header).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
