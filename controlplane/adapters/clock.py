"""The machine's clocks."""

from __future__ import annotations

import time


class SystemClock:
    """Wall time in epoch seconds, and a monotonic clock that counts suspend where the system has one."""

    def wall(self) -> float:
        """Epoch seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since some instant; never goes back."""
        boot = getattr(time, "CLOCK_BOOTTIME", None)
        return time.monotonic() if boot is None else time.clock_gettime(boot)
