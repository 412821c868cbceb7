"""Properties run without a deadline, since machines are shared, and the same on every run."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("trimtab", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("trimtab")
