"""What single values cannot show: contradictions inside a policy, and with its surroundings.

Each check reads one parsed policy and answers pairs of (where, what is wrong, with what
is allowed). Errors refuse the policy; warnings are said and it stays usable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from controlplane.adapters.policyfiles.document import Document, Loc
from controlplane.adapters.policyfiles.policyfile import PolicyFile
from controlplane.domain.loans import BUFFER
from controlplane.domain.policy import Routing
from controlplane.domain.profile import Profile

SCRAPES_IN_WINDOW = 4
SCRAPES_IN_AGE = 2

FIRST_BUCKET_S: Mapping[str, Mapping[str, float]] = {
    "vllm": {"ttft_p95": 0.001, "tpot_p95": 0.01, "e2e_p95": 0.3},
}
"""Upper edge in seconds of the first bucket of each engine's histograms, read from a vLLM 0.32
`/metrics`. A quantile below it cannot be told from the edge."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A policy file that is well formed, with where its keys stand."""

    document: Document
    file: PolicyFile


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a policy has to fit. `scrape_interval_s` None: unknown, and not checked against."""

    profiles: Mapping[str, Profile]
    scrape_interval_s: float | None = None


Finding = tuple[Loc, str]
Check = Callable[[PolicyFile, Surroundings], Iterator[Finding]]


def errors(policies: Iterable[Parsed], around: Surroundings) -> list[str]:
    """Every contradiction of every policy, and between them."""
    parsed = list(policies)
    return _run(ERRORS, parsed, around) + list(_same_name(parsed))


def warnings(policies: Iterable[Parsed], around: Surroundings) -> list[str]:
    """What is allowed and probably not meant."""
    return _run(WARNINGS, policies, around)


def _run(checks: Iterable[Check], policies: Iterable[Parsed], around: Surroundings) -> list[str]:
    return [
        each.document.problem(loc, said)
        for each in policies
        for check in checks
        for loc, said in check(each.file, around)
    ]


def _same_name(policies: Iterable[Parsed]) -> Iterator[str]:
    first: dict[str, Document] = {}
    for each in policies:
        known = first.setdefault(each.file.pool, each.document)
        if known is not each.document:
            where = f"{known.path}:{known.line(('pool',))}"
            yield each.document.problem(("pool",), f"{each.file.pool}, which is defined at {where} already")


def _bounds(file: PolicyFile, _: Surroundings) -> Iterator[Finding]:
    capacity = file.capacity
    if capacity.min > capacity.max:
        said = f"{capacity.min}, allowed: at most capacity.max ({capacity.max}) in pool {file.pool}"
        yield ("capacity", "min"), said


def _account(file: PolicyFile, _: Surroundings) -> Iterator[Finding]:
    if file.pool == BUFFER:
        said = f"{BUFFER}, allowed: any other name: it is the account of nodes that belong to nobody"
        yield ("pool",), f"{said} (its file has kind: buffer)"


def _zero(file: PolicyFile, _: Surroundings) -> Iterator[Finding]:
    if file.capacity.min == 0 and file.routing is Routing.EXTERNAL:
        said = (
            "0, allowed: at least 1 with routing external: without an instance no metric of the pool exists,"
            " and nothing could wake it (with routing gateway its queue is seen)"
        )
        yield ("capacity", "min"), said


def _hysteresis(file: PolicyFile, _: Surroundings) -> Iterator[Finding]:
    capacity = file.capacity
    if capacity.shrink_below >= capacity.grow_above:
        below, above = (_origin(file, key) for key in ("shrink_below", "grow_above"))
        key = "shrink_below" if "shrink_below" in capacity.model_fields_set else "grow_above"
        said = (
            f"shrink_below {capacity.shrink_below:g}{below} and grow_above {capacity.grow_above:g}{above},"
            " allowed: shrink_below under grow_above"
        )
        yield ("capacity", key), said


def _origin(file: PolicyFile, key: str) -> str:
    return "" if key in file.capacity.model_fields_set else " (the default)"


def _windows(file: PolicyFile, around: Surroundings) -> Iterator[Finding]:
    if around.scrape_interval_s is None:
        return
    spans = (
        ("window", file.evidence.window, SCRAPES_IN_WINDOW),
        ("max_age", file.evidence.max_age, SCRAPES_IN_AGE),
    )
    for key, span_s, scrapes in spans:
        least = scrapes * around.scrape_interval_s
        if span_s < least:
            said = f"{span_s:g}s, allowed: at least {scrapes} scrape intervals ({least:g}s)"
            yield ("evidence", key), said


def _profile(file: PolicyFile, around: Surroundings) -> Iterator[Finding]:
    profile = around.profiles.get(file.profile)
    if profile is None:
        known = ", ".join(sorted(around.profiles)) or "none is there"
        yield ("profile",), f"{file.profile}, which does not exist, allowed: {known}"
    elif profile.tp != file.tp:
        yield ("tp",), f"{file.tp}, allowed: {profile.tp}, as in profile {profile.name}"


def _first_bucket(file: PolicyFile, around: Surroundings) -> Iterator[Finding]:
    profile = around.profiles.get(file.profile)
    edges = FIRST_BUCKET_S.get(profile.engine, {}) if profile else {}
    for key, edge in edges.items():
        target = getattr(file.slo, key)
        if target is not None and target <= edge:
            said = f"{target:g}s is not above the engine's first histogram edge ({edge:g}s):"
            said += " a breach cannot be told"
            yield ("slo", key), said


def _reachable(file: PolicyFile, around: Surroundings) -> Iterator[Finding]:
    profile = around.profiles.get(file.profile)
    if profile is None:
        return
    fastest = profile.f * profile.d0_ms / 1000.0
    if file.slo.tpot_p95 <= fastest:
        yield (
            ("slo", "tpot_p95"),
            f"{file.slo.tpot_p95:g}s, but one request alone takes {fastest:.3g}s a token",
        )
    if file.limit is not None and file.limit > profile.max_num_seqs:
        said = f"{file.limit}, but the engine runs at most {profile.max_num_seqs}:"
        said += " the rest waits where order is fixed"
        yield ("limit",), said


def _cold_start(file: PolicyFile, around: Surroundings) -> Iterator[Finding]:
    profile = around.profiles.get(file.profile)
    held_s = file.capacity.stabilise
    if profile is not None and held_s is not None and held_s < profile.cold_start_p95_s:
        said = f"{held_s:g}s is shorter than a cold start ({profile.cold_start_p95_s:g}s):"
        said += " expect flaps"
        yield ("capacity", "stabilise"), said


ERRORS: tuple[Check, ...] = (_account, _bounds, _zero, _hysteresis, _windows, _profile)
WARNINGS: tuple[Check, ...] = (_first_bucket, _reachable, _cold_start)
