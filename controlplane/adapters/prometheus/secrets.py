"""Credentials of the metrics source: read late, sent once, shown never (B-058, B-189, B-190)."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from controlplane.settings import PrometheusSettings

_SHOWN = 200
_MASK = "***"


@dataclass(frozen=True, slots=True)
class Access:
    """A URL without credentials, and the header they became. `repr` shows neither secret nor header."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def scrub(self, text: str) -> str:
        """A text fit for logs: every secret masked, in every form we know it in, then cut short."""
        for secret in self.secrets:
            text = text.replace(secret, _MASK)
        plain = "".join(letter if letter.isprintable() else " " for letter in text)
        return plain if len(plain) <= _SHOWN else plain[:_SHOWN] + "…"


def access(settings: PrometheusSettings) -> Access:
    """How to reach the source now; files are read again each time, because tokens rotate.

    Raises InvalidConfig, naming the place, where a secret can't be read.
    """
    url, pair = _split(settings.url)
    if settings.basic is not None:
        pair = settings.basic.read()
    if settings.bearer is not None:
        token = settings.bearer.read()
        return Access(url, {"Authorization": f"Bearer {token}"}, _forms([token]))
    if pair is None:
        return Access(url)
    encoded = base64.b64encode(pair.encode()).decode()
    password = pair.partition(":")[2]
    return Access(url, {"Authorization": f"Basic {encoded}"}, _forms([encoded, pair, password]))


def _split(url: str) -> tuple[str, str | None]:
    """The URL without user and password, and `user:password` where it had them."""
    parts = urlsplit(url)
    userinfo, found, host = parts.netloc.rpartition("@")
    bare = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
    return bare, unquote(userinfo) if found else None


def _forms(secrets: Iterable[str]) -> tuple[str, ...]:
    """The secrets as they are and as URLs and Python's repr write them, longest first."""
    forms = {
        form for secret in secrets if secret for form in (secret, quote(secret, safe=""), repr(secret)[1:-1])
    }
    return tuple(sorted(forms, key=len, reverse=True))
