"""What will be sent, to which model, and when: several traces merged into one order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from controlplane.traffic.client import Client
from controlplane.traffic.trace import Floats, Ints, Trace


class Request(NamedTuple):
    """One request, due `due_s` seconds after the play's start. `number`: its place in the schedule."""

    due_s: float
    model: str
    prompt_tokens: int
    output_tokens: int
    number: int = 0
    client: Client = Client()


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """Requests in the order in which they are due. `model` indexes `models` and their `clients`; arrays
    of one length."""

    models: tuple[str, ...]
    clients: tuple[Client, ...]
    due_s: Floats
    model: Ints
    prompt_tokens: Ints
    output_tokens: Ints

    def __len__(self) -> int:
        return int(self.due_s.shape[0])

    def __iter__(self) -> Iterator[Request]:
        for at in range(len(self)):
            yield Request(
                float(self.due_s[at]),
                self.models[self.model[at]],
                int(self.prompt_tokens[at]),
                int(self.output_tokens[at]),
                at,
                self.clients[self.model[at]],
            )


def merged(parts: Sequence[tuple[str, Trace]], clients: Sequence[Client] | None = None) -> Schedule:
    """One schedule of each model's trace, in order of arrival; simultaneous ones in the order of `parts`.

    `clients`: one for each part; None: all send each request once.
    """
    due = np.concatenate([trace.arrival_s for _, trace in parts])
    model = np.repeat(np.arange(len(parts)), [len(trace) for _, trace in parts])
    order = np.argsort(due, kind="stable")
    return Schedule(
        models=tuple(name for name, _ in parts),
        clients=(Client(),) * len(parts) if clients is None else tuple(clients),
        due_s=due[order],
        model=model[order],
        prompt_tokens=np.concatenate([trace.prompt_tokens for _, trace in parts])[order],
        output_tokens=np.concatenate([trace.output_tokens for _, trace in parts])[order],
    )
