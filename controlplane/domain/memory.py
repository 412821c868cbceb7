"""What both kinds of cycle remember of a pool alike."""

from __future__ import annotations

from dataclasses import replace

from controlplane.domain import trust
from controlplane.domain.numbers import significant
from controlplane.domain.profile import Mix
from controlplane.domain.state import PoolState
from controlplane.domain.view import PoolView


def seen_again(view: PoolView) -> PoolState:
    """The pool's memory with sight, gaps, suspects and the last known mix brought up to date."""
    state, blind = view.state, view.blind
    gap_ends = not blind and trust.gap_ends(state, view.now, view.policy.evidence)
    return replace(
        state,
        blind=state.blind + 1 if blind else 0,
        seen_since=None if blind else (view.now if state.seen_since is None else state.seen_since),
        seen_at=state.seen_at if blind else view.now,
        gap_ended_at=view.now if gap_ends else state.gap_ended_at,
        suspects={view.instances[row].instance_id: seen for row, seen in view.suspects.items()},
        mix=_rounded(view.mix.mix) if view.mix.source == "measured" else state.mix,
    )


def _rounded(mix: Mix) -> Mix:
    return Mix(
        significant(mix.prompt_mean), significant(mix.output_mean), significant(mix.output_square_mean)
    )
