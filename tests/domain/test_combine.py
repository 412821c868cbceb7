"""The merge of proposals: its invariants in prose, then as properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.combine import combine
from controlplane.domain.explanation import Clamp, Proposal, Step, Verb, Vote

numbers = st.integers(0, 50).map(float)
proposals = st.one_of(
    st.builds(Proposal, st.sampled_from([Verb.SET, Verb.AT_LEAST, Verb.AT_MOST]), numbers),
    st.just(Proposal(Verb.HOLD)),
)


def steps(*spoken: tuple[str, Proposal]) -> list[Step]:
    return [Step(rule, "because", Vote.ABSTAIN, (), (proposal,)) for rule, proposal in spoken]


opinions = st.lists(st.tuples(st.sampled_from("abc"), proposals), max_size=6)


@given(numbers)
def test_without_a_word_the_number_stays(before: float) -> None:
    assert combine(before, [])[0].value == before


@given(numbers, opinions, opinions, numbers)
def test_adding_a_floor_never_lowers_the_outcome(
    before: float, first: list[tuple[str, Proposal]], rest: list[tuple[str, Proposal]], floor: float
) -> None:
    without, _ = combine(before, steps(*first, *rest))
    with_floor, _ = combine(before, steps(*first, ("floor", Proposal(Verb.AT_LEAST, floor)), *rest))
    assert with_floor.value >= without.value


@given(numbers, opinions, opinions, numbers)
def test_adding_a_cap_never_raises_the_outcome(
    before: float, first: list[tuple[str, Proposal]], rest: list[tuple[str, Proposal]], cap: float
) -> None:
    without, _ = combine(before, steps(*first, *rest))
    with_cap, _ = combine(before, steps(*first, ("cap", Proposal(Verb.AT_MOST, cap)), *rest))
    assert with_cap.value <= without.value


@given(numbers, opinions, st.tuples(st.sampled_from("abc"), proposals))
def test_the_same_opinion_twice_changes_nothing(
    before: float, first: list[tuple[str, Proposal]], last: tuple[str, Proposal]
) -> None:
    assert combine(before, steps(*first, last))[0] == combine(before, steps(*first, last, last))[0]


@given(numbers, opinions)
def test_a_hold_at_the_end_brings_back_what_is(before: float, spoken: list[tuple[str, Proposal]]) -> None:
    assert combine(before, steps(*spoken, ("hold", Proposal(Verb.HOLD))))[0].value == before


@given(numbers, opinions)
def test_every_move_of_anothers_number_is_on_record(
    before: float, spoken: list[tuple[str, Proposal]]
) -> None:
    merged, said = combine(before, steps(*spoken))
    clamps = [clamp for step in said for clamp in step.clamps]
    assert all(clamp.by != clamp.whom and clamp.before != clamp.after for clamp in clamps)
    if clamps:
        assert merged.author in {clamp.by for clamp in clamps} | {clamp.whom for clamp in clamps}


def test_a_clamp_names_both_rules_and_both_numbers() -> None:
    merged, said = combine(
        6.0, steps(("load", Proposal(Verb.SET, 12.0)), ("step", Proposal(Verb.AT_MOST, 9.0)))
    )
    assert (merged.value, merged.author) == (9.0, "step")
    assert said[1].clamps == (Clamp("step", "load", 12.0, 9.0),)


def test_agreement_is_no_clamp() -> None:
    merged, said = combine(
        6.0, steps(("load", Proposal(Verb.SET, 6.0)), ("bounds", Proposal(Verb.AT_LEAST, 2.0)))
    )
    assert (merged.author, said[1].clamps) == ("load", ())


def test_a_proposal_without_its_value_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="at_least needs a value"):
        combine(1.0, steps(("load", Proposal(Verb.AT_LEAST))))
