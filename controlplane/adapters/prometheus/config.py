"""A `prometheus.yml` for a fleet: what to scrape, under which labels, and what to keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from controlplane.adapters.engines import families
from controlplane.adapters.engines.escape import any_of
from controlplane.adapters.engines.template import Source, duration


@dataclass(frozen=True, slots=True)
class ScrapePlan:
    """What a fleet's Prometheus is to do. Intervals in seconds.

    `engines` and `gpus`: where targets are listed, each a file (`file_sd`, JSON or YAML) or an
    `http://` address (`http_sd`); the lists carry the labels `cluster, pool, instance_id, node,
    pod, namespace` and `cluster, node`. `gateways`: name to the `host:port` of HAProxy's exporter.
    `doors`: name to the `host:port` of `trimtab gateway-exporter` beside that gateway.
    `trimtab`: `host:port` of the control plane's own `/metrics`, empty where it isn't scraped.
    `alertmanager`: `host:port` of who is told of alerts, empty for nobody.
    """

    cluster: str
    engines: str
    gpus: str
    gateways: Mapping[str, str]
    interval_s: float = 15.0
    rule_files: Sequence[str] = ()
    trimtab: str = ""
    doors: Mapping[str, str] = field(default_factory=dict)
    alertmanager: str = ""


def prometheus_config(plan: ScrapePlan) -> str:
    """The configuration as YAML text."""
    jobs = [
        {"job_name": "engines", **_discovery(plan.engines, plan.interval_s), **_keep(Source.ENGINE)},
        {
            "job_name": "gpus",
            "honor_labels": True,  # pod and namespace are the GPU user's, not the exporter's
            **_discovery(plan.gpus, plan.interval_s),
            **_keep(Source.GPU),
        },
        {
            "job_name": "gateways",
            "params": {"scope": ["backend"]},  # servers are not read here: 31 KB and not 3.8 MB a scrape
            "static_configs": [_gateway(plan.cluster, *gateway) for gateway in plan.gateways.items()],
            **_keep(Source.GATEWAY),
        },
    ]
    if plan.doors:
        doors = [_gateway(plan.cluster, *door) for door in plan.doors.items()]
        jobs.append({"job_name": "doors", "static_configs": doors})  # all of it: its losses are news too
    if plan.trimtab:
        own = {"targets": [plan.trimtab], "labels": {"cluster": plan.cluster}}
        jobs.append({"job_name": "trimtab", "static_configs": [own]})
    config = {"global": _global(plan), "rule_files": list(plan.rule_files), "scrape_configs": jobs}
    if plan.alertmanager:
        config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [plan.alertmanager]}]}]}
    return yaml.safe_dump(config, sort_keys=False, width=4096)


def _global(plan: ScrapePlan) -> Mapping[str, Any]:
    interval = duration(plan.interval_s)
    return {
        "scrape_interval": interval,
        "scrape_timeout": interval,
        "evaluation_interval": interval,
        "external_labels": {"cluster": plan.cluster},  # for what leaves; local series have it from discovery
    }


def _discovery(place: str, interval_s: float) -> Mapping[str, Any]:
    refresh = duration(max(interval_s, 1.0))
    if place.startswith(("http://", "https://")):
        return {"http_sd_configs": [{"url": place, "refresh_interval": refresh}]}
    return {"file_sd_configs": [{"files": [place], "refresh_interval": refresh}]}


def _gateway(cluster: str, name: str, address: str) -> Mapping[str, Any]:
    return {"targets": [address], "labels": {"cluster": cluster, "gateway": name}}


def _keep(source: Source) -> Mapping[str, Any]:
    """Only families that a template reads: a full engine is 455 series, this about 150."""
    wanted = any_of(families(source))
    rule = {"source_labels": ["__name__"], "regex": wanted, "action": "keep"}
    return {"metric_relabel_configs": [rule]}
