"""The twin's engine against published measurements of the replicas that its profiles claim.

    python -m controlplane.twin.compare ../shared/traces/profiles.json

plays each published closed-loop point (concurrency, prompt and output length) through the pure
engine and compares milliseconds per output token.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from controlplane.twin.engine.costs import Costs
from controlplane.twin.engine.engine import Engine, EventKind
from controlplane.twin.live.fleet import costs_from

SATURATED_TTFT_MS = 3_000.0
"""A point whose first token took longer was queueing: its time per token says nothing of a step."""

FAR = float("inf")


@dataclass(frozen=True, slots=True)
class Claim:
    """Which published rows a profile claims to describe, and how far off it may be on average."""

    model: str
    tp: int
    engine: str
    stated_error: float


PROFILES: Mapping[str, Claim] = {
    "llama-3.1-8b-h100-tp1": Claim("Llama-3.1-8B-Instruct", 1, "trtllm", 0.05),
    "llama-3.1-70b-h100-tp2": Claim("Llama-3.1-70B", 2, "vllm", 0.03),
    "llama-3.1-70b-h100-tp4": Claim("Llama-3.1-70B", 4, "vllm", 0.03),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One point: lengths in tokens, times in milliseconds per output token."""

    concurrency: int
    prompt: int
    output: int
    published_ms: float
    played_ms: float

    @property
    def error(self) -> float:
        """Relative: played against published."""
        return self.played_ms / self.published_ms - 1.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """All points of one profile. Errors are relative (0.05: 5 %)."""

    profile: str
    rows: Sequence[Row]

    @property
    def mean_absolute(self) -> float:
        """Mean of the absolute errors."""
        return sum(abs(row.error) for row in self.rows) / len(self.rows)

    @property
    def bias(self) -> float:
        """Mean error: below 0 where the twin is faster than what was measured."""
        return sum(row.error for row in self.rows) / len(self.rows)

    @property
    def worst(self) -> float:
        """The error of largest size."""
        return max((row.error for row in self.rows), key=abs)


def points_file(shared: Path) -> Path:
    """Where the published points are, below the folder of reference data."""
    return shared / "traces" / "profiles.json"


def compare(profile: str, path: Path, largest: float = FAR) -> Comparison:
    """Play every unsaturated, measured point of a profile's replica. Deterministic.

    `largest`: points with more tokens in one round (concurrency times output) are left out; all of
    them together take some minutes.
    """
    claim, costs = PROFILES[profile], costs_from(profile, max_num_seqs=256)
    points = [
        point
        for point in _points(json.loads(path.read_text("utf-8"))["points"], claim)
        if point["concurrency"] * point["osl"] <= largest
    ]
    return Comparison(profile, [_played(costs, point) for point in points])


def _points(points: Sequence[Mapping[str, Any]], claim: Claim) -> Iterator[Mapping[str, Any]]:
    for point in points:
        same = (point["model"], point.get("tp"), point["engine"]) == (claim.model, claim.tp, claim.engine)
        measured = (
            point["kind"] == "measured" and point["load"] == "closed" and point["gpu"].startswith("H100")
        )
        if same and measured and point.get("ttft_ms", FAR) < SATURATED_TTFT_MS:
            yield point


def _played(costs: Costs, point: Mapping[str, Any]) -> Row:
    clients, prompt, output = int(point["concurrency"]), int(point["isl"]), int(point["osl"])
    return Row(clients, prompt, output, float(point["tpot_ms"]), play(costs, clients, prompt, output))


def play(costs: Costs, clients: int, prompt: int, output: int) -> float:
    """Milliseconds per output token of `clients` that each ask again as soon as they are answered.

    The first answers are of different lengths, so that prompts and decodes mix as in a running
    service; what is measured is each client's second answer, first token to last.
    """
    engine = Engine(costs)
    for client in range(clients):
        engine.submit(client, prompt, max(1, output * (client + 1) // clients), 0.0)
    first: dict[int, float] = {}
    times: list[float] = []
    while len(times) < clients:
        for event in next(engine.advance(FAR)).events:
            if event.kind is EventKind.TOKEN:
                first.setdefault(event.request, event.at)
            elif event.kind is EventKind.FINISHED:
                if clients <= event.request < 2 * clients:
                    times.append((event.at - first[event.request]) / (output - 1))
                engine.submit(event.request + clients, prompt, output, event.at)
    return 1000.0 * sum(times) / len(times)


@click.command()
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every point.")
def main(path: Path, *, as_json: bool) -> None:
    """Play the published points in PATH (profiles.json) and say how far off the twin is.

    Exit status 1 where a profile is further off than it states. All points take some minutes.
    """
    compared = [compare(profile, path) for profile in PROFILES]
    click.echo(json.dumps([_facts(each) for each in compared]) if as_json else table(compared))
    if any(each.mean_absolute > PROFILES[each.profile].stated_error for each in compared):
        raise SystemExit(1)


def table(compared: Sequence[Comparison]) -> str:
    """One line a profile, errors in percent."""
    lines = [f"{'profile':<26}{'points':>7}{'mean |error|':>14}{'bias':>8}{'worst':>8}{'stated':>8}"]
    for each in compared:
        stated = PROFILES[each.profile].stated_error
        figures = f"{each.mean_absolute:>14.1%}{each.bias:>+8.1%}{each.worst:>+8.1%}{stated:>8.0%}"
        lines.append(f"{each.profile:<26}{len(each.rows):>7}{figures}")
    return "\n".join(lines)


def _facts(compared: Comparison) -> dict[str, Any]:
    return {
        "profile": compared.profile,
        "stated_error": PROFILES[compared.profile].stated_error,
        "mean_absolute": compared.mean_absolute,
        "bias": compared.bias,
        "worst": compared.worst,
        "rows": [{**asdict(row), "error": row.error} for row in compared.rows],
    }


if __name__ == "__main__":
    main()
