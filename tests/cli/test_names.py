"""Names of clusters and pools on the command line that are none."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from controlplane.cli.main import main


@pytest.mark.parametrize("name", ["", "a\nb", "chat-8b\n", "Demo", "a_b", "-a", "a" * 64, 'a"b', "ä"])
@pytest.mark.parametrize(
    "command",
    [
        ["twin", "serve", "--cluster"],
        ["rules", "scrape", "--engines", "e.json", "--gpus", "g.json", "--cluster"],
        ["decisions", "list", "--pool"],
        [
            "gateway",
            "render",
            "--socket",
            "s",
            "--inventory",
            "http://127.0.0.1:1",
            "--out",
            "o",
            "--long-pool",
        ],
    ],
    ids=lambda command: f"{command[0]} {command[-1]}",
)
def test_a_cluster_or_a_pool_that_has_no_such_name_is_a_usage_error(command: list[str], name: str) -> None:
    """It would become a label of every series and a part of every id, which then cannot be taken apart."""
    told = CliRunner().invoke(main, [*command, name])
    assert told.exit_code == 2
    assert f"{name!r}; allowed: a DNS label" in " ".join(told.output.split())


def test_a_name_that_keeps_to_the_form_is_taken() -> None:
    options = ["--engines", "e.json", "--gpus", "g.json", "--cluster", "east-1"]
    told = CliRunner().invoke(main, ["rules", "scrape", *options])
    assert told.exit_code == 0, told.output
    assert "cluster: east-1" in told.output
