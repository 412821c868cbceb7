"""The buffer's policy file: what the nodes that belong to nobody keep back from everybody.

The buffer is no pool: it has no model, no callers and no size of its own. What it lends is in the
ledger of loans; what runs on it while it waits are the offline pools.
"""

from __future__ import annotations

from typing import Annotated

from controlplane.adapters.policyfiles.document import Document
from controlplane.adapters.policyfiles.leaves import Leaf, whole
from controlplane.adapters.policyfiles.shape import Closed, defaults
from controlplane.domain import policy as domain
from controlplane.domain.loans import BUFFER

KIND = "buffer"

_BUFFER = defaults(domain.BufferPolicy)


def _exactly(word: str, why: str) -> Leaf:
    def read(value: object) -> str:
        if value != word:
            raise ValueError
        return word

    return Leaf(read, f"{word}{why}", {"const": word, "type": "string"})


class BufferFile(Closed):
    """The policy of the buffer: nodes that belong to no pool and may be lent to any."""

    pool: Annotated[str, _exactly(BUFFER, ", the name of its account in the ledger of loans")]
    """Always buffer: the name of its account in the ledger of loans."""
    kind: Annotated[str, _exactly(KIND, "")]
    """Always buffer: this file is no pool's."""
    reserve: Annotated[int, whole(0, 100_000)] = _BUFFER["reserve"]
    """GPUs of the buffer that stay free: no pool may take them."""
    reserve_priority: Annotated[int, whole(0, 100)] = _BUFFER["reserve_priority"]
    """Pools of at least this priority may take the reserve too, while their latency is in breach."""

    def value(self) -> domain.BufferPolicy:
        """The domain's value of the file."""
        return domain.BufferPolicy(self.reserve, self.reserve_priority)


def is_buffer(document: Document) -> bool:
    """Whether a file means the buffer and not a pool."""
    return isinstance(document.value, dict) and document.value.get("kind") == KIND
