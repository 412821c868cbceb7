"""`trimtab traffic` as a user meets it."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from controlplane.cli.main import main
from controlplane.traffic.readers import read_trace
from controlplane.traffic.results import Outcome, read_results
from tests.traffic.stub import Stub, eventually, serving

HEADER = "arrival_s,prompt_tokens,output_tokens\n"
NOWHERE = "http://127.0.0.1:1"


def trimtab(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["traffic", *arguments])


async def process(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        "-m",
        "controlplane",
        "traffic",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


def test_play_sums_up_on_stdout_and_writes_each_result(tmp_path: Path) -> None:
    trace, results = tmp_path / "t.csv", tmp_path / "r.jsonl"
    trace.write_text(HEADER + "0,5,8\n0.1,5,16\n0.2,5,24\n")
    mix = tmp_path / "mix.json"
    mix.write_text(json.dumps([{"model": name, "trace": "t.csv", "from": 0} for name in ("ok", "refused")]))

    async def run() -> tuple[bytes, bytes, Stub]:
        async with serving() as stub:
            playing = await process(
                "play", "--url", stub.url, "--mix", str(mix), "--for", "1", "--results", str(results)
            )
            out, err = await playing.communicate()
        return out, err, stub

    out, err, stub = asyncio.run(run())
    summary = json.loads(out)
    assert err == b""
    assert summary["requests"] == {
        "sent": 6,
        "ok": 3,
        "refused": 3,
        "failed": 0,
        "faulted": 0,
        "unfinished": 0,
        "retried": 0,
    }
    assert summary["latency"]["total_s"]["n"] == 3
    assert summary["lag_p99_s"] is not None
    assert [part["requests"] for part in summary["traffic"]] == [3, 3]
    assert sorted(body["max_tokens"] for body in stub.bodies) == [8, 8, 16, 16, 24, 24]
    assert len(read_results(results)) == 6


def test_a_surge_is_a_play_of_its_own_seed_by_options_or_by_a_mix(tmp_path: Path) -> None:
    """The same crowd either way, at its rate from the start, and another one by another seed."""
    mix = tmp_path / "mix.json"
    mix.write_text(json.dumps([{"model": "ok", "seeded": {"rate": 20, "steady": True}, "hash": True}]))
    plays = {
        "options": ("--model", "ok", "--rate", "20", "--steady", "--seed", "9"),
        "mix": ("--mix", str(mix), "--seed", "9"),
        "other": ("--mix", str(mix), "--seed", "8"),
    }

    async def run() -> dict[str, tuple[list[int], list[str | None], str]]:
        found = {}
        for name, options in plays.items():
            async with serving() as stub:
                playing = await process("play", "--url", stub.url, *options, "--for", "1")
                out, err = await playing.communicate()
            assert err == b""
            source = json.loads(out)["traffic"][0]["source"]
            found[name] = (
                sorted(body["max_tokens"] for body in stub.bodies),
                sorted(stub.names, key=str),
                source,
            )
        return found

    found = asyncio.run(run())
    assert found["options"][0] == found["mix"][0] != found["other"][0]
    assert found["mix"][2] == "seeded chat, seed 9, steady"
    assert set(found["options"][1]) == {None}
    assert not set(found["mix"][1]) & set(found["other"][1])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly_with_what_it_has(tmp_path: Path, number: signal.Signals) -> None:
    trace, results = tmp_path / "t.csv", tmp_path / "r.jsonl"
    trace.write_text(HEADER + "0,5,8\n500,5,8\n")

    async def run() -> tuple[bytes, int | None]:
        async with serving() as stub:
            options = ("--model", "held", "--trace", str(trace), "--from", "0", "--for", "501")
            playing = await process("play", "--url", stub.url, *options, "--results", str(results))
            try:
                await eventually(lambda: stub.open_now == 1)
                assert playing.returncode is None
                playing.send_signal(number)
                out, _ = await playing.communicate()
            finally:
                if playing.returncode is None:
                    playing.kill()
        return out, playing.returncode

    out, code = asyncio.run(run())
    summary = json.loads(out)
    assert code == 0
    assert summary["stopped"] is True
    assert summary["requests"]["unfinished"] == summary["requests"]["sent"] == 1
    assert [result.outcome for result in read_results(results)] == [Outcome.UNFINISHED]


def test_a_trace_with_a_bad_row_plays_nothing_and_keeps_the_old_results(tmp_path: Path) -> None:
    trace, results = tmp_path / "t.csv", tmp_path / "r.jsonl"
    trace.write_text(HEADER + "0,5,8\n1,5,0\n2,nan,8\n")
    results.write_text("yesterday's\n")

    async def run() -> tuple[bytes, int | None, Stub]:
        async with serving() as stub:
            options = ("--model", "ok", "--trace", str(trace), "--for", "3", "--results", str(results))
            playing = await process("play", "--url", stub.url, *options)
            _, err = await playing.communicate()
        return err, playing.returncode, stub

    err, code, stub = asyncio.run(run())
    assert code == 1
    assert stub.bodies == []
    assert f"{trace}:line 3: output_tokens is 0; allowed: a whole number from 1".encode() in err
    assert f"{trace}:line 4: prompt_tokens is 'nan'".encode() in err
    assert results.read_text() == "yesterday's\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--url", "ftp://gateway", "--model", "m"], "allowed: http://host:port"),
        (["--url", "127.0.0.1:80", "--model", "m"], "allowed: http://host:port"),
        (["--url", f"{NOWHERE}/v1", "--model", "m"], "allowed: http://host:port"),
        (["--url", NOWHERE], "neither --model nor --mix"),
        (["--url", NOWHERE, "--mix", "m.json", "--from", "3"], "--mix and --from"),
        (["--url", NOWHERE, "--mix", "m.json", "--steady", "--seed", "3"], "--mix and --steady"),
        (["--url", NOWHERE, "--model", "m", "--trace", "t.csv", "--rate", "3"], "trace and seeded"),
        (["--url", NOWHERE, "--model", "m", "--rate", "0"], "'--rate': 0.0 is not in the range x>0"),
        (["--url", NOWHERE, "--mix", "none.json"], "none.json: No such file"),
        (["--url", NOWHERE, "--model", "m", "--trace", "none.csv"], "none.csv: No such file"),
        (["--url", NOWHERE, "--model", "m", "--copies", "0"], "'--copies': 0.0 is not in the range x>0"),
        (["--url", NOWHERE, "--model", "m", "--copies", "2", "--peak-rate", "9"], "copies and peak"),
        (["--url", NOWHERE, "--model", "m", "--from", "900"], "from second 900; allowed: 0 to"),
        (
            ["--url", NOWHERE, "--model", "m", "--results", "/nowhere/r.jsonl"],
            "/nowhere/r.jsonl: No such file",
        ),
        (["--url", NOWHERE, "--model", "m", "--for", "0"], "--for"),
    ],
)
def test_bad_options_are_refused_in_words(options: list[str], said: str) -> None:
    result = trimtab("play", *options)
    assert result.exit_code in (1, 2)
    assert said in result.output.replace("\n", " ")
    assert "Traceback" not in result.output


def test_make_writes_the_same_trace_for_the_same_seed_and_inspect_shows_it(tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    for path in (first, second):
        assert trimtab("make", str(path), "--seed", "7", "--for", "120").exit_code == 0
    assert first.read_bytes() == second.read_bytes()
    figures: dict[str, Any] = json.loads(trimtab("inspect", str(first), "--json").output)
    assert figures["requests"] == first.read_text().count("\n") - 1
    shown = trimtab("inspect", str(first))
    assert shown.exit_code == 0
    assert "peak_minute_rate" in shown.output
    assert "█" in shown.output


def test_a_day_is_written_and_drawn_with_its_noon_its_flash_crowd_and_its_batches(tmp_path: Path) -> None:
    """A bar is twenty minutes: the crowd of 18:00 is in full by the bar that begins at 18:20."""
    day, batch = tmp_path / "day.parquet", tmp_path / "batch.csv"
    made = trimtab("day", str(day), "--batch", str(batch), "--for", "7200", "--rate", "20", "--seed", "7")
    assert made.exit_code == 0, made.output
    title, online, other, offline, hours = made.output.splitlines()
    assert title.startswith("day: 20.")
    assert other.startswith("batch: 20.")
    height = ["▁▂▃▄▅▆▇█".index(bar) for bar in online]
    assert height[36] >= 6, "noon"
    assert height[55] >= height[53] + 3 <= height[0] + 5, "18:20 against 17:40"
    assert height[60] <= height[55] - 3, "20:00"
    assert [bar for bar in offline if bar != "▁"] == ["█"] * 18
    assert hours.index("18:00") == 54
    assert read_trace(day).period_s <= 7200
    assert read_trace(batch).arrival_s[-1] < 7200 * 21 / 24 + 1


def test_a_day_is_the_same_by_the_same_seed_and_has_its_figures_as_json(tmp_path: Path) -> None:
    first, second, other = (tmp_path / f"{name}.csv" for name in ("a", "b", "c"))
    found = [
        json.loads(trimtab("day", str(path), "--for", "600", "--seed", seed, "--json").output)
        for path, seed in ((first, "3"), (second, "3"), (other, "4"))
    ]
    assert first.read_bytes() == second.read_bytes() != other.read_bytes()
    assert list(found[0]) == ["day"]
    assert found[0] == found[1] != found[2]
    assert found[0]["day"]["period_s"] == 600
    same = trimtab("day", str(first), "--batch", str(first))
    assert "allowed: two files" in same.output
    assert first.read_bytes() == second.read_bytes()


def test_inspect_and_make_refuse_what_they_cannot_read_or_write(tmp_path: Path) -> None:
    assert "known: .parquet, .csv, .jsonl" in trimtab("make", str(tmp_path / "t.txt")).output
    assert "No such file" in trimtab("inspect", str(tmp_path / "t.csv")).output
    assert trimtab("make", str(tmp_path / "absent" / "t.csv")).exit_code == 1


@pytest.mark.parametrize("name", ["play", "inspect", "make", "day"])
def test_help_teaches_with_an_example(name: str) -> None:
    assert f"trimtab traffic {name} " in trimtab(name, "--help").output
