"""What wiring itself decides: which policies are in force, and under which name they are recorded."""

from __future__ import annotations

from pathlib import Path

from controlplane.adapters.sql.open import open_record
from controlplane.domain.ids import CycleId, CycleKind
from controlplane.domain.policy import Mode, Policies
from controlplane.loop.replay import compare, recompute
from controlplane.wiring import only_observing
from tests.builders import policies
from tests.loop.world import World


def test_a_decision_made_only_observing_is_replayed_as_one(tmp_path: Path) -> None:
    """The record keeps policies once a hash: the same files with and without --observe-only are two."""
    record = open_record(f"sqlite:///{tmp_path / 'trimtab.db'}", "demo")
    try:
        world = World()
        world.ledger = record.ledger  # type: ignore[assignment]
        world.loop = world.restarted()
        world.cycle()
        world.rules = only_observing(world.rules)
        world.speed = (1.0, 1.0, 1.0, 0.4)
        world.cycle()
        stored = record.reader.cycle(CycleId("demo", CycleKind.WEIGHTS, 2))
        assert stored is not None
        assert {each.weights_mode for each in stored.frame.policies.pools.values()} == {Mode.OBSERVE}
        then = (record.reader.plan(stored.cycle, stored), stored.next_state)
        assert compare(stored.cycle, recompute(stored.frame), then).differences == ()
    finally:
        record.lease.release()
        record.close()


def test_only_observing_is_the_same_each_time_and_not_the_policies_as_they_are() -> None:
    rules: Policies = policies()
    assert only_observing(rules) == only_observing(rules)
    assert only_observing(rules).version.content_hash != rules.version.content_hash
    assert only_observing(rules).version.commit == rules.version.commit
