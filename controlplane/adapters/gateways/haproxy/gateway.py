"""The gateway port on HAProxy's runtime API. `read` is the truth; `apply` is confirmed by reading."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from controlplane.adapters.gateways.haproxy import commands as cmd
from controlplane.adapters.gateways.haproxy import membership
from controlplane.adapters.gateways.haproxy.layout import WEIGHT_MAX
from controlplane.adapters.gateways.haproxy.parse import QUESTIONS, ServerRow, Tables, tables
from controlplane.adapters.gateways.haproxy.runtime import Answer, Deadline, Runtime
from controlplane.adapters.gateways.haproxy.view import Epoch, backends, locate, next_epoch
from controlplane.domain.fleet import Instance
from controlplane.domain.gateway import Capabilities, GatewayView, WeightMeaning
from controlplane.domain.ids import ActionId, InstanceId
from controlplane.domain.plan import Action, ActionState
from controlplane.ports import Clock, OutcomeUnknown, PortError, Unavailable

CAPABILITIES = Capabilities(
    per_instance_limit=True,
    central_queue=True,
    priority=True,
    zero_weight=True,
    ramp=True,
    weight_meaning=WeightMeaning.CONCURRENCY_WHEN_BUSY,
    weight_max=WEIGHT_MAX,
)

Outcomes = dict[ActionId, tuple[ActionState, str]]


class HaproxyGateway:
    """One HAProxy process behind its runtime API.

    `instances` answers the inventory's instances as last known: server names are slots,
    and only the inventory knows which instance holds a slot now. `timeout_s` bounds a
    whole `read` and a whole `apply`, looking before and reading back included.
    """

    def __init__(
        self,
        name: str,
        runtime: Runtime,
        instances: Callable[[], Iterable[Instance]],
        clock: Clock,
        timeout_s: float = 1.5,
    ) -> None:
        self._name = name
        self._runtime = runtime
        self._instances = instances
        self._clock = clock
        self._timeout_s = timeout_s
        self._epoch: Epoch | None = None

    @property
    def name(self) -> str:
        """The gateway's name in `fleet.yaml`."""
        return self._name

    def read(self) -> GatewayView:
        """The state now. Raises Unavailable."""
        found = self._look(Deadline(self._timeout_s))
        now = self._clock.wall()
        self._epoch = next_epoch(self._epoch, found.process, now)
        return GatewayView(
            self._name, now, str(self._epoch), CAPABILITIES, backends(found, self._instances())
        )

    def apply(self, actions: Sequence[tuple[ActionId, Action]]) -> Mapping[ActionId, tuple[ActionState, str]]:
        """Send levels as one request and read them back; an answer for EVERY action, never an exception.

        Members come and go first, so that the levels of a new one find it there. Unchanged: it
        stood at that level already, nothing was sent for it. Failed: nothing was sent, or it was
        accepted and reads back otherwise. Unknown: sent, and no answer came in time; it is left
        to the next observation.
        """
        deadline = Deadline(self._timeout_s)
        try:
            before, instances = self._look(deadline), tuple(self._instances())
        except PortError as error:
            return {id_: (ActionState.FAILED, f"nothing was sent: {error}") for id_, _ in actions}
        outcomes, found = self._members(actions, instances, before, deadline)
        levels = [each for each in actions if each[1].kind not in membership.KINDS]
        settled, steps = _sift(levels, locate(found, instances), found)
        return outcomes | settled | (self._send(steps, deadline) if steps else {})

    def _members(
        self,
        actions: Sequence[tuple[ActionId, Action]],
        instances: Sequence[Instance],
        before: Tables,
        deadline: Deadline,
    ) -> tuple[Outcomes, Tables]:
        """Who comes and who goes, and the tables as they are then."""
        mine = [each for each in actions if each[1].kind in membership.KINDS]
        outcomes, changes = membership.sift(mine, before, instances)
        if not changes:
            return outcomes, before
        told = [(change, self._tell(change, deadline)) for change in changes]
        try:
            after = self._look(deadline)
        except Unavailable as error:
            unseen = ActionState.UNKNOWN, f"sent, and not read back: {error}"
            return outcomes | {
                each.id: unseen if isinstance(said, str) else said for each, said in told
            }, before
        return outcomes | {each.id: _become(each, said, after) for each, said in told}, after

    def _tell(self, change: membership.Change, deadline: Deadline) -> str | cmd.Verdict:
        """HAProxy's words, or the verdict where it said none. A change goes by itself; see `Runtime.tell`."""
        try:
            return self._runtime.tell(change.commands, deadline)
        except OutcomeUnknown as error:
            return ActionState.UNKNOWN, str(error)
        except Unavailable as error:
            return ActionState.FAILED, f"nothing was sent: {error}"

    def _look(self, deadline: Deadline) -> Tables:
        return tables(*self._runtime.ask(QUESTIONS, deadline))

    def _send(self, steps: Sequence[cmd.Step], deadline: Deadline) -> Outcomes:
        batch = cmd.commands(steps)
        try:
            answer = self._runtime.set([command.text for command in batch], QUESTIONS, deadline)
            return _judge(steps, batch, answer)
        except OutcomeUnknown as error:
            return {step.id: (ActionState.UNKNOWN, str(error)) for step in steps}
        except Unavailable as error:
            return {step.id: (ActionState.FAILED, f"nothing was sent: {error}") for step in steps}


def _sift(
    actions: Sequence[tuple[ActionId, Action]], located: Mapping[InstanceId, ServerRow], before: Tables
) -> tuple[Outcomes, list[cmd.Step]]:
    """Settle what needs no sending, and answer the steps that do."""
    outcomes: Outcomes = {}
    steps: list[cmd.Step] = []
    for id_, action in actions:
        server = located.get(action.instance) if action.instance else None
        if server is None or server.pool != action.pool:
            outcomes[id_] = ActionState.FAILED, f"this gateway has no server for {action.instance}"
        elif said := cmd.objection(action, server):
            outcomes[id_] = ActionState.REFUSED, said
        elif cmd.level(server, action.kind) == action.level:
            outcomes[id_] = ActionState.UNCHANGED, f"{action.kind} {action.level} already"
        else:
            steps.append(cmd.Step(id_, action, server))
    starved = cmd.starved(steps, tuple(before.servers.values()))
    outcomes |= dict.fromkeys(starved, (ActionState.REFUSED, "all weights of the pool would be zero"))
    return outcomes, [step for step in steps if step.id not in starved]


def _become(change: membership.Change, said: str | cmd.Verdict, after: Tables) -> cmd.Verdict:
    return membership.verdict(change, said, after) if isinstance(said, str) else said


def _judge(steps: Sequence[cmd.Step], batch: Sequence[cmd.Command], answer: Answer) -> Outcomes:
    replies: dict[ActionId, list[str]] = defaultdict(list)
    for command, reply in zip(batch, answer.settings, strict=True):
        replies[command.id].append(reply)
    try:
        after = tables(*answer.questions)
    except Unavailable as error:
        raise OutcomeUnknown(f"sent, and read back as nonsense: {error}") from error
    return {
        step.id: cmd.verdict(step, replies[step.id], after.servers.get((step.server.pool, step.server.name)))
        for step in steps
    }
