"""What a step costs and how much memory there is: the truth that the twin plays by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

BLOCK_TOKENS = 16
"""Tokens in one KV block (vLLM's default block size)."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Times in milliseconds, lengths in tokens.

    One engine step with running contexts c_i and q prompt tokens to process takes
    `f * (d0 + sum(d1 + d2*c_i) + p1*q)` divided by the speed of the card. Summed over the life
    of a mean request this is the published form `f * (d0 + B*(d1 + d2*ctx + p1*isl/osl))`.
    """

    d0_ms: float
    d1_ms: float
    d2_ms: float
    p1_ms: float
    f: float
    ttft_overhead_ms: float
    kv_tokens: int
    max_num_seqs: int
    max_batched_tokens: int = 8192

    @property
    def blocks(self) -> int:
        """KV blocks of the whole instance."""
        return self.kv_tokens // BLOCK_TOKENS

    def step_s(self, contexts: Iterable[int], prompt_tokens: int, speed: float) -> float:
        """Seconds of one step at `speed` (1.0: as the profile says)."""
        decode = sum(self.d1_ms + self.d2_ms * context for context in contexts)
        return self.f * (self.d0_ms + decode + self.p1_ms * prompt_tokens) / speed / 1000.0


def blocks_for(tokens: int) -> int:
    """KV blocks that hold `tokens`."""
    return -(-tokens // BLOCK_TOKENS)
