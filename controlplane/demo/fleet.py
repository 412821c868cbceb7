"""What a demonstration runs: its pools' policies, its traffic, its cadences. Plain data and texts."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from controlplane.demo.profiles import request_cost
from controlplane.domain.profile import Profile
from controlplane.twin.live.fleet import PoolPlan

CLUSTER = "demo"
GATEWAY = "door"
SCRAPE_S = 1.0
WINDOW_S = 60.0
WEIGHTS_S = 2.0
CAPACITY_S = 3.0
DEADLINE_S = 1.5
"""How long a cycle waits for all its readings together."""

MAX_AGE_S = 10.0
"""Oldest sample that is acted upon. Longer than a short failure, so that its end is not a gap."""

CHUNK = 8
"""Tokens in one streamed chunk: a chunk costs 0.1 ms of CPU, however many tokens are in it."""

MAX_CONTEXT = 16_384
SOCKET_PATH_MAX = 80
"""Longest path of a socket that is used as it is; HAProxy appends some while it binds."""

PEAK_SHARE = 0.85
"""What the starred pool gets when it is busiest, the crowd included, of what all its instances carry that
stand or sleep anywhere."""

CALM_SHARE = 0.70
"""Without the crowd: of what the instances carry that it has all the time."""

PEAK_WINDOW_S = 15
"""The busiest seconds that are held to a share: a burst this long must not overrun the pool."""

HELD_S = 10.0
"""How long an alert must hold here before it fires; the shipped rules say five minutes."""

ALERT = "P95OverTarget"
"""The shipped rule that is in force here."""

RETURN_S = 20.0
"""How long after its last want a pool keeps its size; the default is five minutes."""

DRAIN_S = 60.0
COMES_BACK = {"attempts": 100, "wait_s": 1.0}
"""How the offline pool's client meets an answer that was broken off, or refused: it asks again."""

STARRED = "chat-8b"
"""The pool that the trace drives."""

BORROWED = f"{STARRED}-s"
"""How the slots of its sleepers in the buffer begin."""


@dataclass(frozen=True, slots=True)
class Character:
    """How a pool is meant: priority, kind and targets (a policy's texts); whether its size follows what is
    decided; its light traffic, by shape and requests/s."""

    priority: int
    kind: str
    ttft: str
    tpot: str
    least: int
    most: int
    moves: bool = False
    light: tuple[tuple[str, float], ...] = ()


CHARACTERS: Mapping[str, Character] = {
    "chat-8b": Character(80, "online", "1s", "40ms", 12, 16, moves=True),
    "reason-70b": Character(70, "online", "2s", "50ms", 2, 6, light=(("mixed", 0.4),)),
    "vision": Character(60, "online", "2500ms", "60ms", 2, 8, light=(("day", 0.8),)),
    "batch-eval": Character(
        10, "offline", "60s", "200ms", 4, 4, moves=True, light=(("batch", 0.8), ("reason", 0.5))
    ),
}
STEADY = frozenset({"reason"})
"""Shapes that come at the same rate all the time: long answers, of which some are always under way."""


def pools_of(kind: str) -> tuple[str, ...]:
    """Pools of a kind: `online` or `offline`."""
    return tuple(name for name, who in CHARACTERS.items() if who.kind == kind)


def policy_text(plan: PoolPlan) -> str:
    """A pool's policy file: the shipped one's meaning, with windows of a minute."""
    who = CHARACTERS[plan.name]
    body = {
        "pool": plan.name,
        "model": plan.model,
        "profile": plan.profile,
        "tp": plan.tp,
        "kind": who.kind,
        "priority": who.priority,
        "limit": plan.seats,
        "slo": {"ttft_p95": who.ttft, "tpot_p95": who.tpot, "window": "1m"},
        "capacity": {
            "min": who.least,
            "max": who.most,
            "shrink_cooldown": f"{RETURN_S:g}s",
            "stabilise": f"{RETURN_S:g}s",
            "drain": f"{DRAIN_S:g}s",
        },
        "evidence": {"window": f"{WINDOW_S:g}s", "max_age": f"{MAX_AGE_S:g}s", "page_after_cycles": 5},
        "mode": {"weights": "auto", "capacity": "auto" if who.moves else "observe"},
    }
    return yaml.safe_dump(body, sort_keys=False)


def buffer_text(plans: Sequence[PoolPlan]) -> str:
    """The buffer's policy file: half of its node stays free, so that what is lent is what sleeps there."""
    reserve = sum(plan.sleepers * plan.tp for plan in plans)
    return yaml.safe_dump(
        {"pool": "buffer", "kind": "buffer", "reserve": reserve, "reserve_priority": 100}, sort_keys=False
    )


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything of one run is. Ports on loopback; no gateway exporter and no Alertmanager runs where
    its ports are 0."""

    folder: Path
    database: Path
    prometheus: int
    gateway: int
    exporter: int
    twin: int
    door_log: int = 0
    door_metrics: int = 0
    controller: int = 0
    alertmanager: int = 0

    @property
    def socket(self) -> Path:
        """The gateway's runtime API: in the folder, or where its path would be too long for a socket
        (some 100 bytes on Linux), in the system's folder for temporary files."""
        own = self.folder / "gateway.sock"
        if len(os.fsencode(own)) <= SOCKET_PATH_MAX:
            return own
        name = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"trimtab-{name}.sock"

    @property
    def fleet(self) -> Path:
        """The controller's fleet file."""
        return self.folder / "fleet.yaml"

    @property
    def policies(self) -> Path:
        """One file a pool."""
        return self.folder / "policies"

    @property
    def token(self) -> Path:
        """What Alertmanager must show to the controller."""
        return self.folder / "alerts-token"

    @property
    def profiles(self) -> Path:
        """What the controller believes."""
        return self.folder / "profiles"


def fleet_text(places: Places) -> str:
    """The controller's `fleet.yaml`."""
    body: Mapping[str, Any] = {
        "cluster": CLUSTER,
        "prometheus": {
            "url": f"http://127.0.0.1:{places.prometheus}",
            "timeout": "1s",
            "deadline": f"{DEADLINE_S * 1000:g}ms",
            "scrape_interval": f"{SCRAPE_S:g}s",
        },
        "gateways": [{"name": GATEWAY, "kind": "haproxy", "socket": str(places.socket)}],
        "orchestrator": {"kind": "twin", "url": f"http://127.0.0.1:{places.twin}"},
        "database": {"url": f"sqlite:///{places.database}"},
        "cadence": {"weights": f"{WEIGHTS_S:g}s", "capacity": f"{CAPACITY_S:g}s"},
        "listen": {"host": "127.0.0.1", "port": places.controller},
        **({"webhook": {"token_file": str(places.token)}} if places.alertmanager else {}),
    }
    return yaml.safe_dump(dict(body), sort_keys=False)


def mix_text(plans: Sequence[PoolPlan], truths: Mapping[str, Profile], trace: Path | None, seed: int) -> str:
    """The traffic: the trace (or seeded chat) to the starred pool, light traffic to the others.

    The starred pool's busiest seconds take `CALM_SHARE` of what its instances truly carry.
    """
    entries: list[dict[str, Any]] = []
    for plan in plans:
        starred = plan.name == STARRED
        entries += [_starred(plan, truths[plan.name], trace, seed)] if starred else _light(plan, seed)
    return json.dumps(entries, indent=2)


def crowd_text(plan: PoolPlan, profile: Profile, seconds: float, seed: int) -> str:
    """The crowd: chat from its first second on, as much as is between the calm and `PEAK_SHARE` of all."""
    most = PEAK_SHARE * (plan.instances + plan.sleepers) - CALM_SHARE * plan.instances
    entry = {
        "model": plan.model,
        "seeded": {"shape": "chat", "seed": seed + 1, "rate": 20.0, "steady": True},
        "peak": {"capacity": most, "share": 1.0, "cost": request_cost(profile).model_dump()},
        "peak_window_s": max(1, int(seconds)),
        "max_context": MAX_CONTEXT,
        "scale_seed": seed + 1,
    }
    return json.dumps([entry], indent=2)


def _starred(plan: PoolPlan, profile: Profile, trace: Path | None, seed: int) -> dict[str, Any]:
    source = {"trace": str(trace)} if trace else {"seeded": {"shape": "chat", "seed": seed}}
    cost = request_cost(profile).model_dump()
    peak = {"capacity": plan.instances, "share": CALM_SHARE, "cost": cost}
    return {
        "model": plan.model,
        **source,
        "peak": peak,
        "peak_window_s": PEAK_WINDOW_S,
        "max_context": MAX_CONTEXT,
        "scale_seed": seed,
    }


def _light(plan: PoolPlan, seed: int) -> list[dict[str, Any]]:
    who = CHARACTERS[plan.name]
    again = {"retry": COMES_BACK} if who.kind == "offline" else {}
    return [
        {
            "model": plan.model,
            "seeded": {"shape": shape, "seed": seed, "rate": rate, "steady": shape in STEADY},
            "max_context": MAX_CONTEXT,
            **again,
        }
        for shape, rate in who.light
    ]


STATEMENT = (
    f"scrapes every {SCRAPE_S:g} s, evidence windows of {WINDOW_S:g} s, weights every {WEIGHTS_S:g} s, "
    f"capacity every {CAPACITY_S:g} s, a pool keeps its size for {RETURN_S:g} s after its last want, "
    f"{ALERT} fires after {HELD_S:g} s, about {CHUNK} tokens a chunk"
)
"""What differs from production, said at the start."""
