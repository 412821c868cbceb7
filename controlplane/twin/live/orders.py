"""Orders to the orchestrator: levels by instance id, read field by field."""

from __future__ import annotations

import re
from dataclasses import dataclass

from controlplane.twin.live.lifecycle import Level

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
START = re.compile(r"[1-9a-z][0-9a-z]{0,7}")
ACTION = re.compile(r"[!-~]{1,200}")
GPU_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class Place:
    """What a new instance is, or what one is said to be."""

    pool: str
    node: str
    gpus: tuple[int, ...]
    lent_by: str | None


@dataclass(frozen=True, slots=True)
class Order:
    """A level for one instance. `start`: whole epoch seconds, from its id."""

    action_id: str
    instance_id: str
    level: Level
    place: Place | None

    @property
    def slot(self) -> str:
        """The slot in its id."""
        return self.instance_id.rpartition("/")[2].partition("@")[0]

    @property
    def start(self) -> int:
        """The start in its id."""
        return int(self.instance_id.rpartition("@")[2], 36)


def parse(body: object, cluster: str) -> Order:
    """An order from a request's JSON. ValueError says what is wrong and what is allowed."""
    read = _object(body, "the body", {"action_id", "instance_id", "state", "spec"})
    level = read.get("state")
    if not isinstance(level, str) or level not in set(Level):
        raise ValueError(f"state is {level!r}; allowed: {', '.join(Level)}")
    spec = read.get("spec")
    place = None if spec is None else _place(_object(spec, "spec", {"pool", "node", "gpus", "lent_by"}))
    return Order(_action(read), _instance_id(read, cluster), Level(level), place)


def parse_adoption(body: object, cluster: str) -> tuple[str, str]:
    """Action id and instance id of an adoption. Raises ValueError."""
    read = _object(body, "the body", {"action_id", "instance_id"})
    return _action(read), _instance_id(read, cluster)


def base36(number: int) -> str:
    """A whole number in base 36, digits before letters."""
    text = ""
    while number:
        number, rest = divmod(number, 36)
        text = DIGITS[rest] + text
    return text or "0"


def _object(value: object, what: str, allowed: set[str]) -> dict[str, object]:
    if not isinstance(value, dict):  # a bad request, not a bad call
        raise ValueError(  # noqa: TRY004
            f"{what} is {value!r:.80}; an object with {', '.join(sorted(allowed))} is wanted"
        )
    if unknown := sorted(set(value) - allowed):
        raise ValueError(f"{what} has unknown fields {unknown}; allowed: {', '.join(sorted(allowed))}")
    return value


def _action(read: dict[str, object]) -> str:
    action = read.get("action_id")
    if not isinstance(action, str) or not ACTION.fullmatch(action):
        raise ValueError(f"action_id is {action!r:.80}; 1 to 200 visible characters are allowed")
    return action


def _instance_id(read: dict[str, object], cluster: str) -> str:
    name = read.get("instance_id")
    own, _, rest = name.rpartition("/") if isinstance(name, str) else ("", "", "")
    slot, _, start = rest.partition("@")
    if own != cluster or not NAME.fullmatch(slot) or not START.fullmatch(start):
        raise ValueError(
            f"instance_id is {name!r:.200}; allowed: {cluster}/<slot>@<start>, a slot of a-z, 0-9 and -, "
            "a start in base 36 of 1 to 8 digits"
        )
    return str(name)


def _place(spec: dict[str, object]) -> Place:
    lent_by = spec.get("lent_by")
    return Place(
        pool=_name(spec.get("pool"), "pool"),
        node=_name(spec.get("node"), "node"),
        gpus=_gpus(spec.get("gpus")),
        lent_by=None if lent_by is None else _name(lent_by, "lent_by"),
    )


def _name(value: object, field: str) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise ValueError(f"spec.{field} is {value!r:.80}; allowed: a name of a-z, 0-9 and -")
    return value


def _gpus(value: object) -> tuple[int, ...]:
    if (
        not isinstance(value, list)
        or not value
        or not all(type(each) is int and 0 <= each < GPU_LIMIT for each in value)
        or len(set(value)) < len(value)
    ):
        raise ValueError(f"spec.gpus is {value!r:.80}; allowed: a list of different indices from 0 on")
    return tuple(sorted(value))
