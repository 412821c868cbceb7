"""Numbers on the command line that are none."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from controlplane.cli.main import main


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "-1", "many"])
@pytest.mark.parametrize(
    "command",
    [
        ["demo", "--for"],
        ["traffic", "make", "x.parquet", "--rate"],
        ["twin", "fault", "slow", "chat-8b-03", "--port", "1", "--factor"],
    ],
    ids=lambda command: command[0],
)
def test_what_is_no_number_in_its_range_is_a_usage_error(command: list[str], number: str) -> None:
    """No comparison keeps a NaN out, and an infinite demonstration ends never."""
    told = CliRunner().invoke(main, [*command, number])
    assert told.exit_code == 2
    assert "Invalid value" in told.output
