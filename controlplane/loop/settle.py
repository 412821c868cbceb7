"""What became of an action whose outcome is unknown: the world says it, not a second try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controlplane.domain.gateway import GatewayView
from controlplane.domain.ids import ActionId
from controlplane.domain.plan import Action, ActionState
from controlplane.domain.readings import Missing
from controlplane.loop.second_look import level, server


def settled(
    unknown: Sequence[tuple[ActionId, Action]], gateways: Mapping[str, GatewayView | Missing]
) -> dict[ActionId, tuple[ActionState, str]]:
    """An outcome for each action that can be told now; the others stay unknown for another cycle."""
    outcomes = {}
    for id_, action in unknown:
        view = gateways.get(action.gateway)
        if isinstance(view, GatewayView):
            outcomes[id_] = _verdict(action, view)
    return outcomes


def _verdict(action: Action, view: GatewayView) -> tuple[ActionState, str]:
    found = level(server(view, action.instance), action.kind)
    if found == action.level:
        return ActionState.APPLIED, f"seen at {found} afterwards"
    return ActionState.FAILED, f"wanted {action.level}, seen at {found} afterwards"
