"""Names on the command line: what a cluster or a pool may be called."""

from __future__ import annotations

from typing import Any

import click

from controlplane.domain.ids import NAME


class Name(click.ParamType[str]):
    """A DNS label: it becomes a label of every series and a part of every id."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name as it is. Fails as click does, naming it and what is allowed."""
        if not isinstance(value, str) or not NAME.fullmatch(value):
            self.fail(
                f"{value!r}; allowed: a DNS label: a-z, 0-9 and -, at most 63, such as chat-8b", param, ctx
            )
        return value
