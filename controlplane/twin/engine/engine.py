"""Continuous batching, request by request and step by step, in virtual time.

The caller owns the clock: `submit`, `abort` and `advance` take instants (seconds, any origin,
never going back). Between two calls the engine is where its last finished step left it, so
the same code runs against a wall clock (the live face) or as fast as it can (the fast face).

Scheduling follows vLLM v1: running sequences decode first, the rest of the step's token budget
goes to prompts (chunked prefill), new sequences are admitted first come, first served while a
seat and KV blocks are free, and when blocks run out the youngest running sequence is preempted
and computed again later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from controlplane.twin.engine.costs import Costs, blocks_for


class EventKind(StrEnum):
    """What a finished step brought about for one request."""

    SCHEDULED = "scheduled"  # left the queue for the first time
    TOKEN = "token"  # noqa: S105 - an output token, not a secret
    FINISHED = "finished"
    PREEMPTED = "preempted"


@dataclass(frozen=True, slots=True)
class Event:
    """`at`: the instant; `request`: its key."""

    kind: EventKind
    request: int
    at: float


@dataclass(frozen=True, slots=True)
class Finished:
    """One finished step: from `start` to `end` over `sequences`, of which `decoding` made a token,
    with `prompt_tokens` processed, and what came of it."""

    start: float
    end: float
    sequences: int
    decoding: int
    prompt_tokens: int
    events: tuple[Event, ...]


@dataclass(slots=True)
class Sequence:
    """A request inside the engine. `computed` counts tokens whose KV is in memory."""

    key: int
    prompt_tokens: int
    output_tokens: int
    arrived: float
    computed: int = 0
    generated: int = 0
    blocks: int = 0
    scheduled: bool = False

    @property
    def target(self) -> int:
        """Tokens to compute before the next output token can be made."""
        return self.prompt_tokens + self.generated

    @property
    def prefilling(self) -> bool:
        """Whether prompt (or, after a preemption, recomputed) tokens are still to be processed."""
        return self.computed < self.target


@dataclass(frozen=True, slots=True)
class _Step:
    start: float
    end: float
    decodes: tuple[Sequence, ...]
    chunks: tuple[tuple[Sequence, int], ...]
    events: tuple[Event, ...]

    @property
    def sequences(self) -> int:
        return len(self.decodes) + len(self.chunks)


@dataclass(slots=True)
class Engine:
    """One instance. `speed` may change between steps (a slow card, a throttled one)."""

    costs: Costs
    speed: float = 1.0
    waiting: deque[Sequence] = field(default_factory=deque)
    running: list[Sequence] = field(default_factory=list)
    free_blocks: int = -1
    _step: _Step | None = None
    _aborted: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.free_blocks < 0:
            self.free_blocks = self.costs.blocks

    @property
    def kv_use(self) -> float:
        """Share of KV blocks in use, 0..1."""
        return 1.0 - self.free_blocks / self.costs.blocks

    @property
    def next_end(self) -> float | None:
        """When the step in progress ends; None while idle."""
        return None if self._step is None else self._step.end

    @property
    def owes_first_token(self) -> bool:
        """Whether somebody inside still waits for a first token."""
        return bool(self.waiting) or any(each.generated == 0 for each in self.running)

    def progress(self, now: float) -> tuple[float, int]:
        """Seconds that the step in progress has run, and its sequences; zeros while idle."""
        if self._step is None:
            return 0.0, 0
        return max(0.0, min(now, self._step.end) - self._step.start), self._step.sequences

    def postpone(self, since: float, now: float) -> None:
        """Nothing ran from `since` until `now`: the step in progress ends that much later."""
        if self._step is not None:
            lost = now - max(since, self._step.start)
            self._step = replace(self._step, start=self._step.start + lost, end=self._step.end + lost)

    def fits(self, prompt_tokens: int, output_tokens: int) -> bool:
        """Whether such a request could ever be served by this instance."""
        return blocks_for(prompt_tokens + output_tokens) <= self.costs.blocks

    def submit(self, key: int, prompt_tokens: int, output_tokens: int, now: float) -> None:
        """Queue a request. ValueError where it can never fit or asks for nothing."""
        if prompt_tokens < 1 or output_tokens < 1 or not self.fits(prompt_tokens, output_tokens):
            raise ValueError(f"{prompt_tokens} + {output_tokens} tokens do not fit {self.costs.kv_tokens}")
        self.waiting.append(Sequence(key, prompt_tokens, output_tokens, now))
        if self._step is None:
            self._begin(now)

    def abort(self, key: int) -> bool:
        """Give a request up: at once where it waits, at the end of the step where it runs.

        False where it is unknown, or finished already.
        """
        for sequence in self.waiting:
            if sequence.key == key:
                self.waiting.remove(sequence)
                return True
        if any(sequence.key == key for sequence in self.running):
            self._aborted.add(key)
            return True
        return False

    def advance(self, now: float) -> Iterator[Finished]:
        """Finish every step that ends at or before `now`, in order."""
        while self._step is not None and self._step.end <= now:
            yield self._finish(self._step)

    def _begin(self, now: float) -> None:
        events = list(self._admit(now))
        chunks = self._prompt_chunks()
        decodes = tuple(each for each in self.running if not each.prefilling)
        decodes, preempted = self._reserve(decodes, now)
        if not decodes and not chunks:
            self._step = None
            if self.waiting:  # everybody was preempted: now there is room for the first again
                self._begin(now)
            return
        prompt = sum(count for _, count in chunks)
        length = self.costs.step_s((each.target for each in decodes), prompt, self.speed)
        self._step = _Step(now, now + length, decodes, tuple(chunks), (*events, *preempted))

    def _admit(self, now: float) -> Iterator[Event]:
        """First come, first served, while a seat and the prompt's blocks are free."""
        while self.waiting and len(self.running) < self.costs.max_num_seqs:
            need = blocks_for(self.waiting[0].target)
            if need > self.free_blocks:
                return
            sequence = self.waiting.popleft()
            sequence.blocks, self.free_blocks = need, self.free_blocks - need
            self.running.append(sequence)
            if not sequence.scheduled:
                sequence.scheduled = True
                yield Event(EventKind.SCHEDULED, sequence.key, now)

    def _prompt_chunks(self) -> list[tuple[Sequence, int]]:
        """What is left of the token budget after decoding, to prompts in order of admission."""
        budget = self.costs.max_batched_tokens - sum(not each.prefilling for each in self.running)
        chunks = []
        for sequence in self.running:
            count = min(budget, sequence.target - sequence.computed)
            if count > 0:
                chunks.append((sequence, count))
                budget -= count
        return chunks

    def _reserve(self, decodes: tuple[Sequence, ...], now: float) -> tuple[tuple[Sequence, ...], list[Event]]:
        """A block for each next token; without one the youngest running sequence has to go."""
        preempted: list[Event] = []
        for sequence in decodes:
            need = blocks_for(sequence.target + 1) - sequence.blocks
            while need > self.free_blocks and sequence in self.running:
                preempted.append(self._preempt(now))
            if sequence in self.running:
                sequence.blocks, self.free_blocks = sequence.blocks + need, self.free_blocks - need
        return tuple(each for each in decodes if each in self.running), preempted

    def _preempt(self, now: float) -> Event:
        victim = next(each for each in reversed(self.running) if not each.prefilling)
        self._release(victim)
        victim.computed = 0
        self.waiting.appendleft(victim)
        return Event(EventKind.PREEMPTED, victim.key, now)

    def _release(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.free_blocks += sequence.blocks
        sequence.blocks = 0

    def _finish(self, step: _Step) -> Finished:
        events = list(step.events)
        made = [each for each in step.decodes if each in self.running]
        for sequence, count in step.chunks:
            sequence.computed += count
            if not sequence.prefilling:
                made.append(sequence)
        for sequence in made:
            events += self._token(sequence, step.end)
        self._drop_aborted()
        self._begin(step.end)
        prompt = sum(count for _, count in step.chunks)
        return Finished(step.start, step.end, step.sequences, len(made), prompt, tuple(events))

    def _token(self, sequence: Sequence, at: float) -> list[Event]:
        """One more output token; its own KV is computed by the step that reads it."""
        sequence.computed = sequence.target + 1
        sequence.generated += 1
        events = [Event(EventKind.TOKEN, sequence.key, at)]
        if sequence.generated == sequence.output_tokens:
            self._release(sequence)
            self._aborted.discard(sequence.key)
            events.append(Event(EventKind.FINISHED, sequence.key, at))
        return events

    def _drop_aborted(self) -> None:
        for sequence in [each for each in self.running if each.key in self._aborted]:
            self._release(sequence)
        self.waiting = deque(each for each in self.waiting if each.key not in self._aborted)
        self._aborted.clear()
