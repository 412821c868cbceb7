"""How one model's client behaves: whether it comes back after an attempt that broke, and what it asks for.

Once an answer's first byte is out, no gateway can send its request elsewhere: only the client can send it
again. Offline work does. Pure: chance is handed in, and nobody waits here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

JITTER = 0.5
"""A wait is longer by up to this share, by chance: clients that broke together do not come back together."""
LONGEST_ASKED_S = 30.0
"""A Retry-After above this is taken for this: a server's word does not stop a client for an hour."""


@dataclass(frozen=True, slots=True)
class Retry:
    """At most `attempts` (>= 1) of one request, `wait_s` (>= 0) seconds apart. The default: no retry."""

    attempts: int = 1
    wait_s: float = 0.0

    def pause_s(self, asked_s: float | None, luck: float) -> float:
        """Seconds from an attempt's end to the next: at least `wait_s`, at least what the server asked
        for up to `LONGEST_ASKED_S` (None: it asked for nothing), and less than half as long again.

        `luck` in 0..1, without 1.
        """
        least = max(self.wait_s, min(asked_s or 0.0, LONGEST_ASKED_S))
        return least * (1.0 + JITTER * luck)


@dataclass(frozen=True, slots=True)
class Client:
    """`hashed`: each attempt names itself in `x-request-id`, and the text of a whole answer is hashed."""

    retry: Retry = Retry()
    hashed: bool = False


def asked_s(retry_after: str | None) -> float | None:
    """Seconds that a `Retry-After` header asks for. None where it is absent, or a date or nonsense:
    a date would need the server's clock."""
    try:
        seconds = float(retry_after or "")
    except ValueError:
        return None
    return seconds if 0.0 <= seconds < math.inf else None
