"""What one engine counts about itself, filled from its finished steps as vLLM fills it."""

from __future__ import annotations

from dataclasses import dataclass, field

from controlplane.twin.engine.engine import Event, EventKind, Finished
from controlplane.twin.live.histogram import (
    ITERATION_TOKENS,
    PARAMS_N,
    PREEMPTIONS,
    SECONDS_LONG,
    SECONDS_SHORT,
    SECONDS_TTFT,
    Histogram,
    one_two_five,
)

FINISHED_REASONS = ("stop", "length", "abort", "error", "repetition")
TRACKED_MAX_MODEL_LEN = 32_768


@dataclass(slots=True)
class Life:
    """One request's instants (seconds of the twin's clock); None until they come."""

    prompt_tokens: int
    output_tokens: int
    arrived: float
    scheduled: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    made: int = 0
    preemptions: int = 0


def _histograms(max_model_len: int) -> dict[str, Histogram]:
    tokens = one_two_five(max_model_len)
    bounds = {
        "request_prompt_tokens": tokens,
        "request_generation_tokens": tokens,
        "iteration_tokens_total": ITERATION_TOKENS,
        "request_max_num_generation_tokens": tokens,
        "request_params_n": PARAMS_N,
        "request_params_max_tokens": tokens,
        "time_to_first_token_seconds": SECONDS_TTFT,
        "inter_token_latency_seconds": SECONDS_SHORT,
        "request_time_per_output_token_seconds": SECONDS_SHORT,
        "e2e_request_latency_seconds": SECONDS_LONG,
        "request_queue_time_seconds": SECONDS_LONG,
        "request_inference_time_seconds": SECONDS_LONG,
        "request_prefill_time_seconds": SECONDS_LONG,
        "request_decode_time_seconds": SECONDS_LONG,
        "request_num_preemptions": PREEMPTIONS,
        "request_prefill_kv_computed_tokens": tokens,
    }
    return {name: Histogram(edges) for name, edges in bounds.items()}


@dataclass(slots=True)
class Stats:
    """Counters and histograms of one engine process; they start at 0 with it."""

    max_model_len: int = TRACKED_MAX_MODEL_LEN
    prompt_tokens: int = 0
    generation_tokens: int = 0
    preemptions: int = 0
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FINISHED_REASONS, 0))
    histograms: dict[str, Histogram] = field(default_factory=dict)
    lives: dict[int, Life] = field(default_factory=dict)
    busy_s: float = 0.0
    sequence_s: float = 0.0
    claim: float = 1.0
    """What it says of a latency, as a share of the truth; a liar's is below 1. It is applied as
    latencies are counted, so no series ever goes back when a lie begins or ends."""

    def __post_init__(self) -> None:
        self.histograms = _histograms(self.max_model_len)

    def arrive(self, key: int, life: Life) -> None:
        """A request came in."""
        self.lives[key] = life

    def step(self, step: Finished) -> None:
        """Take one finished step into account."""
        self.prompt_tokens += step.prompt_tokens
        self.generation_tokens += step.decoding
        self.busy_s += step.end - step.start
        self.sequence_s += (step.end - step.start) * step.sequences
        self.histograms["iteration_tokens_total"].observe(float(step.prompt_tokens + step.decoding))
        for event in step.events:
            self._event(event)

    def give_up(self, key: int) -> None:
        """A caller left. Like the real engine: counted as abort, in no latency histogram."""
        if self.lives.pop(key, None) is not None:
            self.finished["abort"] += 1

    def _event(self, event: Event) -> None:
        life = self.lives.get(event.request)
        if life is None:
            return
        if event.kind is EventKind.SCHEDULED:
            life.scheduled = event.at
        elif event.kind is EventKind.PREEMPTED:
            life.preemptions += 1
            self.preemptions += 1
        elif event.kind is EventKind.TOKEN:
            self._token(life, event.at)
        else:
            self._end(life, event.at)
            del self.lives[event.request]

    def _token(self, life: Life, at: float) -> None:
        if life.last_token is None:
            life.first_token = at
            self._observe("time_to_first_token_seconds", at - life.arrived)
        else:
            self._observe("inter_token_latency_seconds", at - life.last_token)
        life.last_token = at
        life.made += 1

    def _end(self, life: Life, at: float) -> None:
        scheduled = life.arrived if life.scheduled is None else life.scheduled
        first = at if life.first_token is None else life.first_token
        self.finished["length"] += 1
        per_token = (at - first) / (life.made - 1) if life.made > 1 else 0.0
        for name, value in (
            ("request_prompt_tokens", float(life.prompt_tokens)),
            ("request_generation_tokens", float(life.made)),
            ("request_max_num_generation_tokens", float(life.output_tokens)),
            ("request_params_n", 1.0),
            ("request_params_max_tokens", float(life.output_tokens)),
            ("request_time_per_output_token_seconds", per_token),
            ("e2e_request_latency_seconds", at - life.arrived),
            ("request_queue_time_seconds", scheduled - life.arrived),
            ("request_inference_time_seconds", at - scheduled),
            ("request_prefill_time_seconds", first - scheduled),
            ("request_decode_time_seconds", at - first),
            ("request_num_preemptions", float(life.preemptions)),
            ("request_prefill_kv_computed_tokens", float(life.prompt_tokens)),
        ):
            self._observe(name, value)

    def _observe(self, name: str, value: float) -> None:
        self.histograms[name].observe(value * self.claim if name.endswith("_seconds") else value)
