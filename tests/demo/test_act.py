"""Deeds on the target lists, and what happens where the twin is too busy to answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from controlplane.demo import act
from controlplane.demo.act import Actor
from controlplane.demo.fleet import Places
from controlplane.demo.processes import Crew, DemoError
from controlplane.demo.stage import Stage, Wish
from controlplane.demo.timeline import Phase, story

PHASES: Mapping[str, Phase] = {phase.name: phase for phase in story(90.0)}
LISTED = {"engines": [{"targets": [f"127.0.0.1:{port}"]} for port in range(12)], "gpus": []}


@pytest.fixture
def actor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Actor:
    places = Places(tmp_path, tmp_path / "record.db", 1, 2, 3, 4)
    stage = Stage(Wish("small", 90.0, None, 1), Crew(tmp_path, threading.Event().is_set), places, Path("p"))
    monkeypatch.setattr(act, "targets", lambda _stage: LISTED)
    return Actor(stage)


def engines(actor: Actor) -> list[Any]:
    found: list[Any] = json.loads((actor.stage.places.folder / "engines.json").read_text("utf-8"))
    return found


def test_lists_are_emptied_and_filled_again(actor: Actor) -> None:
    mark = actor.begin(PHASES["prometheus-empty"])
    assert engines(actor) == []
    actor.end(mark)
    assert engines(actor) == LISTED["engines"]


def test_half_of_the_targets_are_spread_over_the_list(actor: Actor) -> None:
    actor.begin(PHASES["prometheus-half"])
    assert engines(actor) == LISTED["engines"][1::2]


def test_a_changed_list_is_in_force_only_when_it_shows(actor: Actor) -> None:
    assert actor.begin(PHASES["prometheus-half"]).effective_at is None


def test_where_the_twin_does_not_answer_its_last_list_stays(
    actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RUNTIME. A machine that is short of processor time must not end the demonstration."""
    mark = actor.begin(PHASES["baseline"])
    actor.tick(mark)
    assert engines(actor) == LISTED["engines"]

    def busy(_stage: Stage) -> Mapping[str, list[Any]]:
        raise DemoError("timed out")

    monkeypatch.setattr(act, "targets", busy)
    mark = actor.begin(PHASES["prometheus-empty"])
    assert engines(actor) == []
    actor.end(mark)
    assert engines(actor) == LISTED["engines"]
