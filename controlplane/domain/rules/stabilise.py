"""Stabilisation: shrinking follows the largest want of three cold starts. It never causes growth.

What a backlog adds to a want is not held: it ends with the queue (design, section 6: holding the
maximum over three cold starts halved the flaps against five minutes).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from controlplane.domain.combine import Merge
from controlplane.domain.explanation import Proposal, Step, Verb, Vote
from controlplane.domain.load import present_need
from controlplane.domain.rules.base import CapacityView, Rule, figure
from controlplane.domain.state import Want
from controlplane.domain.view import PoolView

ID = "stabilise"


class Code(StrEnum):
    """Why."""

    WANTED_MORE = "stabilise_wanted_more"
    WINDOW_NOT_FULL = "stabilise_window_not_full"
    STEADY = "stabilise_steady"


WORDS: Mapping[str, str] = {
    Code.WANTED_MORE: "it wanted {most} within the last {window}",
    Code.WINDOW_NOT_FULL: "its wants have been watched for {watched} of {window}",
    Code.STEADY: "it has wanted no more for {window}",
}


COLD_STARTS = 3.0
"""How many of the profile's cold starts a want is held, where the policy names no span."""


def window_s(pool: PoolView) -> float:
    """How long a want is held, in seconds."""
    held_s = pool.policy.capacity.stabilise_s
    return COLD_STARTS * pool.profile.cold_start_p95_s if held_s is None else held_s


def sustained(view: CapacityView, want: int) -> int:
    """The want without what only the backlog adds to it."""
    target = view.pool.policy.capacity.target_utilisation
    lasting, now = (present_need(load, target) for load in (view.load.sustained, view.load.lower))
    return min(want, max(lasting, want - (now - lasting)))


def remembered(view: CapacityView, want: int) -> tuple[Want, ...]:
    """The wants to keep: this one, those of the window, and the newest one before it, which proves
    that the window is full. After a pause as long as the window, memory starts again."""
    now, window = view.pool.now, window_s(view.pool)
    wants = view.pool.state.wants
    if wants and now - wants[-1].at >= max(window, 1.0):
        wants = ()
    older = [each for each in wants if now - each.at >= window]
    inside = [each for each in wants if now - each.at < window]
    return (*older[-1:], *inside, Want(now, sustained(view, want)))


def propose(view: CapacityView, so_far: Merge) -> Step:
    """Not below the largest want of the window, and not at all before the window is full."""
    now, window, before = view.pool.now, window_s(view.pool), view.before
    wants = remembered(view, int(so_far.value))
    watched = now - wants[0].at
    most = max(each.instances for each in wants if now - each.at < max(window, 1.0))
    full = watched >= window
    floor = min(before, most) if full else before
    code = Code.STEADY if so_far.value >= floor else (Code.WANTED_MORE if full else Code.WINDOW_NOT_FULL)
    inputs = (
        figure("most", most, "instances"),
        figure("watched", watched, "seconds"),
        figure("window", window, "seconds"),
    )
    return Step(ID, code, Vote.ABSTAIN, inputs, (Proposal(Verb.AT_LEAST, float(floor)),))


RULE = Rule(ID, Code, WORDS, propose)
