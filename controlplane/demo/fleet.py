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
CAPACITY_S = 6.0
DEADLINE_S = 1.5
"""How long a cycle waits for all its readings together."""

MAX_AGE_S = 10.0
"""Oldest sample that is acted upon. Longer than a short failure, so that its end is not a gap."""

CHUNK = 8
"""Tokens in one streamed chunk: a chunk costs 0.1 ms of CPU, however many tokens are in it."""

SOCKET_PATH_MAX = 80
"""Longest path of a socket that is used as it is; HAProxy appends some while it binds."""

PEAK_SHARE = 0.85
PEAK_WINDOW_S = 15
"""The busiest seconds that are held to that share: a burst this long must not overrun the pool."""

STARRED = "chat-8b"
"""The pool that the trace drives."""


@dataclass(frozen=True, slots=True)
class Character:
    """How a pool is meant: priority, kind and targets (a policy's texts); its light traffic."""

    priority: int
    kind: str
    ttft: str
    tpot: str
    least: int
    most: int
    shape: str = "mixed"
    rate: float = 0.5


CHARACTERS: Mapping[str, Character] = {
    "chat-8b": Character(80, "online", "1s", "40ms", 4, 16),
    "reason-70b": Character(70, "online", "2s", "50ms", 2, 6, "mixed", 0.4),
    "vision": Character(60, "online", "2500ms", "60ms", 2, 8, "day", 0.8),
    "batch-eval": Character(10, "offline", "60s", "200ms", 0, 8, "batch", 0.8),
}


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
        "capacity": {"min": who.least, "max": who.most, "shrink_cooldown": "1m", "stabilise": "2m"},
        "evidence": {"window": f"{WINDOW_S:g}s", "max_age": f"{MAX_AGE_S:g}s", "page_after_cycles": 5},
        "mode": {"weights": "auto", "capacity": "observe"},
    }
    return yaml.safe_dump(body, sort_keys=False)


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything of one run is. Ports on loopback; no gateway exporter runs where its ports are 0."""

    folder: Path
    database: Path
    prometheus: int
    gateway: int
    exporter: int
    twin: int
    door_log: int = 0
    door_metrics: int = 0

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
        "listen": {"host": "127.0.0.1", "port": 0},
    }
    return yaml.safe_dump(dict(body), sort_keys=False)


def mix_text(plans: Sequence[PoolPlan], truths: Mapping[str, Profile], trace: Path | None, seed: int) -> str:
    """The traffic: the trace (or seeded chat) to the starred pool, light traffic to the others.

    The starred pool's busiest seconds take `PEAK_SHARE` of what its instances truly carry.
    """
    entries = [
        _starred(plan, truths[plan.name], trace, seed) if plan.name == STARRED else _light(plan, seed)
        for plan in plans
    ]
    return json.dumps(entries, indent=2)


def _starred(plan: PoolPlan, profile: Profile, trace: Path | None, seed: int) -> dict[str, Any]:
    source = {"trace": str(trace)} if trace else {"seeded": {"shape": "chat", "seed": seed}}
    cost = request_cost(profile).model_dump()
    peak = {"capacity": plan.instances, "share": PEAK_SHARE, "cost": cost}
    return {
        "model": plan.model,
        **source,
        "peak": peak,
        "peak_window_s": PEAK_WINDOW_S,
        "max_context": 16_384,
        "scale_seed": seed,
    }


def _light(plan: PoolPlan, seed: int) -> dict[str, Any]:
    who = CHARACTERS[plan.name]
    return {"model": plan.model, "seeded": {"shape": who.shape, "seed": seed, "rate": who.rate}}


STATEMENT = (
    f"scrapes every {SCRAPE_S:g} s, evidence windows of {WINDOW_S:g} s, weights every {WEIGHTS_S:g} s, "
    f"capacity every {CAPACITY_S:g} s (recorded only), about {CHUNK} tokens a chunk"
)
"""What differs from production, said at the start."""
