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


PLAY = ["traffic", "play", "--url", "http://127.0.0.1:1", "--model", "m"]


@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        (["demo", "--for"], "60.0<=x<=86400.0"),
        (["traffic", "make", "x.parquet", "--for"], "1<=x<=31622400.0"),
        ([*PLAY, "--for"], "1<=x<=2592000.0"),
        ([*PLAY, "--grace"], "0<=x<=2592000.0"),
        ([*PLAY, "--timeout"], "1<=x<=2592000.0"),
        ([*PLAY, "--jitter"], "0<=x<=2592000.0"),
        (["twin", "serve", "--cold-start"], "0<=x<=3600"),
        (["twin", "fault", "slow", "chat-8b-03", "--port", "1", "--for"], "0.1<=x<=86400.0"),
    ],
    ids=lambda part: part[-1] if isinstance(part, list) else "",
)
def test_a_duration_longer_than_anybody_means_is_refused_with_what_is_allowed(
    command: list[str], allowed: str
) -> None:
    """One of 1e308 seconds never ends, and its traffic is drawn beforehand."""
    told = CliRunner().invoke(main, [*command, "1e308"])
    assert told.exit_code == 2
    assert f"1e+308 is not in the range {allowed}." in " ".join(told.output.split())
