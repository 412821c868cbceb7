"""Members that come and go while HAProxy runs: the commands for it, and what became of them. Pure.

A slot outlives its instance, so three things can be found where an instance belongs: nothing,
its own server, or a server that still points where an earlier life of the slot answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controlplane.adapters.gateways.haproxy.commands import Verdict, misfit
from controlplane.adapters.gateways.haproxy.layout import SERVER_NAME, server_name
from controlplane.adapters.gateways.haproxy.parse import ServerRow, Tables
from controlplane.adapters.gateways.haproxy.view import elsewhere, endpoint, holders
from controlplane.domain.fleet import Instance
from controlplane.domain.ids import ActionId, InstanceId
from controlplane.domain.plan import Action, ActionKind, ActionState

KINDS = frozenset({ActionKind.ADD, ActionKind.REMOVE})

_CHECK = "check inter 2s fall 3 rise 1"
# As rendered: a dynamic server takes nothing from `default-server`.


@dataclass(frozen=True, slots=True)
class Change:
    """One membership action and the commands for it. `not_yet`: why they do not bring it about
    in one go, empty where they do."""

    id: ActionId
    action: Action
    holder: Instance
    commands: tuple[str, ...]
    not_yet: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Backend and server name."""
        return self.action.pool, server_name(self.holder.instance_id)


def sift(
    actions: Iterable[tuple[ActionId, Action]], found: Tables, instances: Iterable[Instance]
) -> tuple[dict[ActionId, Verdict], list[Change]]:
    """Settle what needs no sending, and answer the changes that do."""
    known = {holder.instance_id: holder for holder in holders(instances)}
    outcomes: dict[ActionId, Verdict] = {}
    changes: list[Change] = []
    for id_, action in actions:
        planned = _planned(id_, action, found, known)
        if isinstance(planned, Change):
            changes.append(planned)
        else:
            outcomes[id_] = planned
    return outcomes, changes


def verdict(change: Change, words: str, after: Tables) -> Verdict:
    """What became of a change: what was read back, else HAProxy's own words."""
    row = after.servers.get(change.key)
    there = row is not None and not elsewhere(row.address, change.holder.address)
    if there is bool(change.action.level):
        return ActionState.APPLIED, f"{change.action.kind} {change.action.level}, read back"
    if change.not_yet:
        return ActionState.FAILED, change.not_yet
    if not words:
        return ActionState.FAILED, "it was accepted, and nothing has changed"
    return (ActionState.REFUSED if change.action.kind is ActionKind.ADD else ActionState.FAILED), words


def _planned(
    id_: ActionId, action: Action, found: Tables, known: Mapping[InstanceId, Instance]
) -> Change | Verdict:
    if said := misfit(action):
        return ActionState.REFUSED, said
    holder = known.get(action.instance or InstanceId(""))
    if holder is None or holder.pool != action.pool:
        return _nobody(action)
    row = found.servers.get((action.pool, server_name(holder.instance_id)))
    if action.kind is ActionKind.REMOVE:
        return _removed(id_, action, holder, row)
    if action.pool not in {backend.pool for backend in found.backends}:
        return ActionState.FAILED, f"this gateway has no backend {action.pool}: render its file and reload"
    return _added(id_, action, holder, row)


def _nobody(action: Action) -> Verdict:
    """Another instance holds the slot, or the inventory has none such: what is there is not this one's."""
    if action.kind is ActionKind.REMOVE:
        return ActionState.UNCHANGED, "it is not there"
    return ActionState.FAILED, f"the inventory names no address for {action.instance} in {action.pool}"


def _removed(id_: ActionId, action: Action, holder: Instance, row: ServerRow | None) -> Change | Verdict:
    """Never forced: HAProxy itself refuses while a connection is attached."""
    if row is None or elsewhere(row.address, holder.address):
        return ActionState.UNCHANGED, "it is not there"
    if not row.closed:
        return ActionState.FAILED, "it is open: it is closed before it is removed"
    target = f"{row.pool}/{row.name}"
    return Change(id_, action, holder, (f"set server {target} state maint", f"del server {target}"))


def _added(id_: ActionId, action: Action, holder: Instance, row: ServerRow | None) -> Change | Verdict:
    if row is not None and not elsewhere(row.address, holder.address):
        return ActionState.UNCHANGED, "it is there already"
    if said := _unreachable(holder):
        return ActionState.REFUSED, said
    if row is not None:
        return _moved(id_, action, holder, row)
    target = f"{action.pool}/{server_name(holder.instance_id)}"
    return Change(id_, action, holder, _adding(target, holder.address))


def _adding(target: str, address: str) -> tuple[str, ...]:
    """Closed, and as small as can be: its levels follow before it is opened. `add` leaves the check off."""
    return (
        f"add server {target} {address} weight 1 maxconn 1 {_CHECK} disabled",
        f"enable health {target}",
    )


def _moved(id_: ActionId, action: Action, holder: Instance, row: ServerRow) -> Change | Verdict:
    """Point a slot's server to its new instance; first the old one's requests end there."""
    target = f"{row.pool}/{row.name}"
    waits = f"{row.name} still points to {row.address}"
    if not row.closed:
        reason = f"{waits}: it is closed first, and points to {holder.address} once it is idle"
        return Change(id_, action, holder, (f"set server {target} state drain",), reason)
    if busy := row.in_flight + row.queue:
        return ActionState.FAILED, f"{waits}, where {busy} requests have not ended"
    host, _, port = holder.address.rpartition(":")
    return Change(id_, action, holder, (f"set server {target} addr {host.strip('[]')} port {port}",))


def _unreachable(holder: Instance) -> str:
    """Why no server can be made for an instance, or an empty text. Nothing else reaches a command."""
    name, place = server_name(holder.instance_id), endpoint(holder.address)
    if not SERVER_NAME.fullmatch(name):
        return f"server name {name!r}: it holds 1 to 64 letters, digits and _ . - only"
    if place is None:
        return f"address {holder.address!r}: a server that comes at run time needs an IP address and a port"
    if not 1 <= place[1] <= 65_535:
        return f"address {holder.address!r}: its port must be from 1 to 65535"
    return ""
