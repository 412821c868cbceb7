"""The control plane itself: its loop runs, and it sees the fleet (B-191).

Reads our own metrics: `trimtab_last_cycle_age_seconds` and `trimtab_cycle_interval_seconds`
by `cluster` and `kind`, `trimtab_blind_cycles` by `cluster` and `pool`.
"""

from __future__ import annotations

from alerts.lib import Alert

INTERVALS = 3
BLIND_CYCLES = 10
LOST_SHARE = 0.5

ALERTS = (
    Alert(
        "TrimtabLoopStalled",
        f"trimtab_last_cycle_age_seconds > {INTERVALS} * trimtab_cycle_interval_seconds",
        "The {{ $labels.kind }} loop of {{ $labels.cluster }} finished its last cycle"
        ' {{ $value | printf "%.0f" }} s ago, more than three intervals; gateways keep their last weights.',
    ),
    Alert(
        "TrimtabGone",
        "absent(trimtab_last_cycle_age_seconds)",
        "Nobody reports a control loop: it is down or not scraped; gateways keep their last weights.",
        held="1m",
    ),
    Alert(
        "TrimtabBlind",
        f"trimtab_blind_cycles >= {BLIND_CYCLES}",
        "Pool {{ $labels.pool }} of {{ $labels.cluster }} has been below its coverage for"
        " {{ $value }} cycles: it is held, nothing shrinks.",
    ),
    Alert(
        "PrometheusBlind",
        "absent(trimtab:instance:running_requests)"
        f' or count(up{{job="engines"}} == 0) / count(up{{job="engines"}}) > {LOST_SHARE}',
        "Prometheus has lost more than half of the engines, or its recording rules yield nothing.",
        held="1m",
    ),
)
