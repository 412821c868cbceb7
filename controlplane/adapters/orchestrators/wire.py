"""The inventory's JSON form, checked field by field, as the domain's values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from controlplane.domain import fleet
from controlplane.domain.ids import NAME, InstanceId, NodeId, PoolName
from controlplane.ports import Order, Unavailable

_SHOWN_PROBLEMS = 3
_SHOWN_LETTERS = 60
_LATEST_S = 253_402_300_799.0  # the end of year 9999
_LAST_PORT = 65_535


def _with_port(address: str) -> str:
    """The address as it is. Raises ValueError where its port is none that anybody listens on."""
    if not 1 <= int(address.rpartition(":")[2]) <= _LAST_PORT:
        raise ValueError(f"allowed: a port from 1 to {_LAST_PORT}")
    return address


Text = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[!-~]+$")]
Pool = Annotated[str, Field(pattern=f"^(?:{NAME.pattern})$")]
Address = Annotated[
    str,
    Field(pattern=r"^([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$"),
    AfterValidator(_with_port),
]
Epoch = Annotated[float, Field(ge=0, le=_LATEST_S)]


class _Form(BaseModel):
    """Strict where it reads, deaf to fields that a later version may add."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False, extra="ignore")


class _Node(_Form):
    node_id: Text
    gpu_type: Text
    gpu_count: Annotated[int, Field(ge=0, le=1024)]
    pool: Pool | None
    unavailable_gpus: Annotated[int, Field(ge=0)]
    models: list[Text]
    host_memory_gib: Annotated[float, Field(ge=0)]

    def value(self) -> fleet.Node:
        return fleet.Node(
            node_id=NodeId(self.node_id),
            gpu_type=self.gpu_type,
            gpu_count=self.gpu_count,
            pool=PoolName(self.pool) if self.pool else None,
            unavailable_gpus=self.unavailable_gpus,
            models=tuple(self.models),
            host_memory_gib=self.host_memory_gib,
        )


class _Instance(_Form):
    instance_id: Text
    pool: Pool
    node: Text
    tp: Annotated[int, Field(ge=1, le=1024)]
    phase: fleet.Phase
    address: Address
    started_at: Epoch
    ready_at: Epoch | None
    lent_by: Pool | None
    gpus: list[Annotated[int, Field(ge=0, le=1023)]] = []
    managed: bool = False

    def value(self) -> fleet.Instance:
        return fleet.Instance(
            instance_id=InstanceId(self.instance_id),
            pool=PoolName(self.pool),
            node=NodeId(self.node),
            tp=self.tp,
            phase=self.phase,
            address=self.address,
            started_at=self.started_at,
            ready_at=self.ready_at,
            lent_by=PoolName(self.lent_by) if self.lent_by else None,
            gpus=tuple(self.gpus),
            managed=self.managed,
        )


class _Inventory(_Form):
    taken_at: Epoch
    nodes: list[_Node]
    instances: list[_Instance]


def inventory(body: bytes) -> fleet.Inventory:
    """The inventory in `body`. Raises Unavailable, naming each wrong field: half of it is not used."""
    try:
        form = _Inventory.model_validate_json(body)
    except ValidationError as error:
        raise Unavailable(_told(error)) from error
    if contradictions := _contradictions(form):
        raise Unavailable("; ".join(contradictions[:_SHOWN_PROBLEMS]))
    return fleet.Inventory(
        taken_at=form.taken_at,
        nodes=tuple(node.value() for node in form.nodes),
        instances=tuple(one.value() for one in form.instances),
    )


def _contradictions(form: _Inventory) -> list[str]:
    """What no single field shows: things counted twice, GPUs beyond a node's own, unknown nodes."""
    nodes = {node.node_id: node.gpu_count for node in form.nodes}
    return [
        *(f"nodes: {name!r} stands twice" for name in _twice(node.node_id for node in form.nodes)),
        *(f"instances: {name!r} stands twice" for name in _twice(one.instance_id for one in form.instances)),
        *(
            f"nodes.{index}.unavailable_gpus is {node.unavailable_gpus} of {node.gpu_count}"
            for index, node in enumerate(form.nodes)
            if node.unavailable_gpus > node.gpu_count
        ),
        *(
            f"instances.{index}.node is {one.node!r}, which is none of the nodes"
            for index, one in enumerate(form.instances)
            if one.node not in nodes
        ),
        *(
            f"instances.{index}.tp is {one.tp}, more than the {nodes[one.node]} GPUs of {one.node!r}"
            for index, one in enumerate(form.instances)
            if one.tp > nodes.get(one.node, one.tp)
        ),
        *(
            f"instances.{index}.gpus is {one.gpus}, not {one.tp} different of the {nodes[one.node]} GPUs of "
            f"{one.node!r}"
            for index, one in enumerate(form.instances)
            if one.gpus and one.node in nodes and not _makes_up(one, nodes[one.node])
        ),
    ]


def _makes_up(one: _Instance, gpu_count: int) -> bool:
    return len(one.gpus) == len(set(one.gpus)) == one.tp and max(one.gpus) < gpu_count


def _twice(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _told(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False)
    told = [f"{'.'.join(map(str, one['loc'])) or 'the answer'}: {_words(one)}" for one in found]
    more = f" (and {len(told) - _SHOWN_PROBLEMS} more)" if len(told) > _SHOWN_PROBLEMS else ""
    return "; ".join(told[:_SHOWN_PROBLEMS]) + more


def _words(problem: ErrorDetails) -> str:
    """What is wrong, and what stood there where it was one value and not a whole object."""
    found, said = problem["input"], problem["msg"].removeprefix("Value error, ")
    if not problem["loc"] or isinstance(found, dict | list):
        return said
    shown = repr(found)
    return f"{said} (it is {shown if len(shown) <= _SHOWN_LETTERS else shown[:_SHOWN_LETTERS] + '…'})"


def order(given: Order) -> dict[str, Any]:
    """An order's JSON form."""
    spec = {"pool": given.pool, "node": given.place.node, "gpus": list(given.place.gpus)}
    return {
        "action_id": str(given.action),
        "instance_id": given.instance,
        "state": given.life.value,
        "spec": spec,
    }
