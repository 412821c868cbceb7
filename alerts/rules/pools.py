"""The pools: uneven work, and latency above what was promised.

Imbalance is read from the controller's own gauges (`trimtab_imbalance_ratio`, computed by
`controlplane.domain.imbalance`): only the controller knows who takes traffic, and the definition
stands in one place. Latency is read from the recorded `trimtab:pool:*` series, its bound from
`trimtab_pool_target_seconds`: so these alerts outlive the controller by `REMEMBERED`.
"""

from __future__ import annotations

from alerts.lib import Alert, Recorded, labelled

IMBALANCE = 0.30
HELD = "5m"
BRIDGED = "2m"
"""A cycle or a scrape that fails does not end an alert; longer blindness has alerts of its own."""
REMEMBERED = "10m"
"""A target is a level in a file: it does not change because the controller restarts."""
SLOWER = 1.25
QUEUED = 1
MIN_SAMPLES = 20
"""Requests in the window below which a P95 is one or two requests' luck; also the policies' default."""

_INSTANCE = "cluster, pool, instance_id"


def _last(gauge: str, by: str, selector: str, span: str) -> str:
    """The newest known value; `max`, since a controller that moved leaves its old series behind."""
    return f"max by ({by}) (last_over_time({gauge}{{{selector}}}[{span}]))"


def _uneven(of: str) -> str:
    spread = _last("trimtab_imbalance_ratio", "cluster, pool, counter", f'of="{of}"', BRIDGED)
    return f"{spread} > {IMBALANCE:.2f}"


def _hottest(of: str) -> str:
    return f'on ({_INSTANCE}) last_over_time(trimtab_hottest_instance_ratio{{of="{of}"}}[{BRIDGED}])'


def _slow(of: str, signal: str) -> str:
    return (
        f"(trimtab:instance:{signal}_p95_seconds and {_hottest(of)}"
        f" and on ({_INSTANCE}) trimtab:instance:{signal}_count_requests >= {MIN_SAMPLES})"
        f" > on (cluster, pool) group_left () {SLOWER} * trimtab:pool:{signal}_p95_seconds"
    )


def _hurts(of: str) -> str:
    """The hot instance queues, or is slower than its pool."""
    queues = f"avg_over_time(trimtab:instance:waiting_requests[{HELD}]) >= {QUEUED} and {_hottest(of)}"
    return f"({queues} or {_slow(of, 'ttft')} or {_slow(of, 'e2e')})"


def _uneven_and_hurting(name: str, of: str) -> str:
    """The warning fires (so the five minutes have passed), and callers feel it."""
    warned = f'ALERTS{{alertname="{name}",severity="warning",alertstate="firing"}}'
    return f"{_uneven(of)} and on (cluster, pool, counter) {warned} and on (cluster, pool) {_hurts(of)}"


def _imbalance(name: str, of: str) -> tuple[Alert, Alert]:
    said = (
        f"The {of} ({{{{ $labels.counter }}}}) of pool {{{{ $labels.pool }}}} of {{{{ $labels.cluster }}}}"
        f' is uneven: one instance stands {{{{ $value | printf "%.2f" }}}} from the mean,'
        f" the bound is {IMBALANCE:.2f}"
    )
    return (
        Alert(name, _uneven(of), f"{said}.", severity="warning", held=HELD),
        Alert(name, _uneven_and_hurting(name, of), f"{said}, and the hottest one queues or is slow."),
    )


_QUEUE_WAIT = (
    f"avg_over_time(trimtab:pool:gateway_queue_requests[{HELD}])"
    " / (trimtab:pool:arrivals_per_second - trimtab:pool:refusals_per_second > 0)"
)
"""Mean wait at the door by Little's law: what queued, by what was let in."""


def _at_the_door(signal: str) -> str:
    """What callers saw, by the gateway exporter, where there is one."""
    counted = f"trimtab:pool:door_{signal}_count_requests >= {MIN_SAMPLES}"
    seen = f"(trimtab:pool:door_{signal}_p95_seconds and on (cluster, pool) {counted})"
    return labelled(seen, signal=f"{signal}_p95", source="door")


def _p95(signal: str, *, waits: bool) -> str:
    """The pool's P95 as far as it is known here, with its source; `waits`: the queue is part of it."""
    engine = (
        f"(trimtab:pool:{signal}_p95_seconds"
        f" and on (cluster, pool) trimtab:pool:{signal}_count_requests >= {MIN_SAMPLES})"
    )
    name = f"{signal}_p95"
    alone = labelled(engine, signal=name, source="engine")
    if not waits:
        return alone
    both = labelled(f"{engine} + on (cluster, pool) {_QUEUE_WAIT}", signal=name, source="engine+queue")
    return " or on (cluster, pool, signal) ".join((_at_the_door(signal), both, alone))


CALLER_P95 = "trimtab:pool:caller_p95_seconds"

RECORDED = (
    Recorded(
        CALLER_P95,
        "max by (cluster, pool, signal, source) "
        f"({_p95('ttft', waits=True)} or {_p95('tpot', waits=False)} or {_p95('e2e', waits=True)})",
    ),
)
"""P95 as the caller sees it, by signal, with its source: the best one that there is."""


def _late(pool_kind: str) -> str:
    by = "cluster, pool, signal"
    target = _last("trimtab_pool_target_seconds", by, f'pool_kind="{pool_kind}"', REMEMBERED)
    # Without the source: where it changes (a gateway not scraped), an alert must not begin anew.
    return f"max by ({by}) ({CALLER_P95}) > on ({by}) {target}"


def _asked(query: str, shown: str) -> str:
    """A word of the summary that is asked for when it is written, about the same pool and signal."""
    selector = "{cluster=%q,pool=%q,signal=%q}"
    labels = "$labels.cluster $labels.pool $labels.signal"
    return (
        f'{{{{ with printf "{query}" {labels} | query }}}}{{{{ . | first | {shown} }}}}{{{{ end }}}}'
    ).replace("SELECTOR", selector)


_SOURCE = _asked(f"{CALLER_P95}SELECTOR", 'label "source"')
_TARGET = _asked(
    f"max(last_over_time(trimtab_pool_target_secondsSELECTOR[{REMEMBERED}]))", 'value | printf "%.3g"'
)
_LATE = (
    "The {{ $labels.signal }} of pool {{ $labels.pool }} of {{ $labels.cluster }}"
    ' is {{ $value | printf "%.3g" }} s (' + _SOURCE + "), its target is " + _TARGET + " s."
)

ALERTS = (
    *_imbalance("UtilisationImbalance", "utilisation"),
    *_imbalance("BusynessImbalance", "busyness"),
    Alert("P95OverTarget", _late("online"), _LATE, held=HELD),
    Alert("P95OverTarget", _late("offline"), _LATE, severity="warning", held=HELD),
)
