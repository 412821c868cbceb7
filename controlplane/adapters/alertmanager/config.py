"""An `alertmanager.yml` for a fleet: how alerts are grouped, repeated, inhibited, and where pages go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from controlplane.adapters.engines.template import duration

RECEIVER = "trimtab"
GROUP_BY = ("cluster", "pool", "alertname")
SAME_TROUBLE = ("alertname", "cluster", "pool", "counter")
"""A page and a warning that agree in these tell of one trouble: the page is enough."""


@dataclass(frozen=True, slots=True)
class PagingPlan:
    """Where pages go and how often. Times in seconds. Raises ValueError, in words, for what can't be.

    `webhook`: the controller's `/alerts`; `token_file`: its bearer token, a path as Alertmanager
    sees it (a relative one counts from the configuration's own folder). The first page of a group
    waits `group_wait_s` for its likes, news of a group that was told already `group_interval_s`,
    and what goes on is told again each `repeat_interval_s`.
    """

    webhook: str
    token_file: str
    group_wait_s: float = 10.0
    group_interval_s: float = 60.0
    repeat_interval_s: float = 4 * 3600.0

    def __post_init__(self) -> None:
        if self.group_interval_s <= 0.0:
            raise ValueError(f"group interval: {self.group_interval_s:g}s, allowed: more than 0s")
        if self.repeat_interval_s < self.group_interval_s:
            raise ValueError(
                f"repeat interval: {self.repeat_interval_s:g}s, allowed: at least the group interval"
                f" ({self.group_interval_s:g}s), at which a group is looked at"
            )


def alertmanager_config(plan: PagingPlan) -> str:
    """The configuration as YAML text."""
    config = {"route": _route(plan), "receivers": [_receiver(plan)], "inhibit_rules": [_inhibition()]}
    return yaml.safe_dump(config, sort_keys=False, width=4096, allow_unicode=True)


def _route(plan: PagingPlan) -> Mapping[str, Any]:
    return {
        "receiver": RECEIVER,
        "group_by": list(GROUP_BY),
        "group_wait": duration(plan.group_wait_s),
        "group_interval": duration(plan.group_interval_s),
        "repeat_interval": duration(plan.repeat_interval_s),
    }


def _receiver(plan: PagingPlan) -> Mapping[str, Any]:
    """The token by its place: the configuration is no secret, and a rotated token is read anew."""
    authorization = {"type": "Bearer", "credentials_file": plan.token_file}
    webhook = {
        "url": plan.webhook,
        "send_resolved": True,  # else a page would stand open on the record for ever
        "http_config": {"authorization": authorization, "follow_redirects": False},
    }
    return {"name": RECEIVER, "webhook_configs": [webhook]}


def _inhibition() -> Mapping[str, Any]:
    return {
        "source_matchers": ['severity = "page"'],
        "target_matchers": ['severity = "warning"'],
        "equal": list(SAME_TROUBLE),
    }
