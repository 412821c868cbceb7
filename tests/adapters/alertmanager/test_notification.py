"""A webhook's body, taken apart: what a page needs and nothing else, or one sentence about what is wrong."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.adapters.alertmanager.notification import Malformed, read_notification
from controlplane.ports import Notified, PageStatus
from tests.builders import NOW
from tests.telemetry.notifications import NEVER, alert, notification

FIRED_AT = 1_800_000_000.123456


def read(body: bytes) -> list[Notified]:
    return list(read_notification(body, "demo", NOW))


def refused(body: bytes) -> str:
    with pytest.raises(Malformed) as caught:
        read(body)
    return str(caught.value)


def labelled(**labels: str) -> Notified:
    (found,) = read(notification(alert(labels=labels)))
    return found


def test_an_alert_is_read_with_all_that_a_page_needs() -> None:
    (found,) = read(notification())
    assert (found.alertname, found.severity, found.pool, found.cluster) == (
        "P95OverTarget",
        "page",
        "chat-8b",
        "demo",
    )
    assert (found.starts_at, found.ends_at, found.status) == (FIRED_AT, None, PageStatus.FIRING)
    assert (found.summary, found.runbook) == ("It is late.", "alerts/runbooks/P95OverTarget.md")
    assert found.fingerprint == "1f0c2d3e4a5b6c7d"


def test_an_end_is_when_it_is_said_to_be_and_now_where_that_is_not_said() -> None:
    said, unsaid = read(notification(alert("resolved"), alert("resolved", endsAt=NEVER)))
    assert (said.ends_at, unsaid.ends_at) == (1_800_000_060.0, NOW)
    (firing,) = read(notification(alert(endsAt="2027-01-15T08:04:00Z")))
    assert firing.ends_at is None, "when it would be given up is no end"


def test_times_may_be_of_any_zone_and_precision() -> None:
    for written in ("2027-01-15T08:00:00Z", "2027-01-15T09:00:00+01:00", "2027-01-15T08:00:00.000000000Z"):
        (found,) = read(notification(alert(startsAt=written)))
        assert found.starts_at == 1_800_000_000.0


def test_what_names_no_cluster_or_none_that_can_be_is_of_this_one() -> None:
    assert labelled(cluster="other").cluster == "other"
    assert labelled().cluster == "demo"
    assert labelled(cluster="Not:A Name").cluster == "demo"
    assert labelled(pool="no:pool").pool == ""
    assert labelled(pool="no:pool").labels == {"pool": "no:pool"}


def test_labels_are_bounded_in_number_and_length_and_made_printable() -> None:
    assert len(labelled(**{f"l{n:03}": "x" for n in range(64)}).labels) == 64
    many = labelled(**{f"l{n:03}": "x" for n in range(65)}, pool="chat-8b")
    assert len(many.labels) == 64
    assert many.pool == "chat-8b"
    assert labelled(long="x" * 1024).labels["long"] == "x" * 1024
    assert labelled(long="x" * 1025).labels["long"] == "x" * 1024
    assert labelled(evil="\x1b[2J\x00\ud800\n").labels["evil"] == " [2J   "
    (found,) = read(notification(alert(annotations={"summary": "é" * 2000, "other": "y"})))
    assert found.summary == "é" * 1024


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the body: not JSON in UTF-8"),
        (b"\xff\xfe", "the body: not JSON in UTF-8"),
        (b"[" * 200_000, "the body: nested too deeply"),
        (b"[]", "the body: [], allowed: a JSON object"),
        (b"9" * 5000, "the body: not JSON in UTF-8"),
        (notification(version="5"), 'version: 5, allowed: "4"'),
        (notification(version=4), 'version: 4, allowed: "4"'),
        (b"{}", 'version: nothing, allowed: "4"'),
        (notification(alerts={}), "alerts: {}, allowed: a list"),
        (notification(alerts=[7]), "alerts[0]: 7, allowed: a JSON object"),
        (notification(alert(), alert("pending")), "alerts[1].status: pending, allowed: firing or resolved"),
        (notification(alert(labels=None)), "alerts[0].labels: nothing, allowed: a JSON object"),
        (notification(alert(labels={"pool": 7})), "alerts[0].labels.pool: 7, allowed: text"),
        (notification(alert(annotations=[])), "alerts[0].annotations: [], allowed: a JSON object"),
        (notification(alert(fingerprint="../..")), "alerts[0].fingerprint: ../.., allowed: 1 to 64 digits"),
        (notification(alert(fingerprint=None)), "alerts[0].fingerprint: nothing"),
        (
            notification(alert(startsAt=NEVER)),
            f"alerts[0].startsAt: {NEVER}, allowed: a time from 1970 to 2199",
        ),
        (notification(alert(startsAt="2027-01-15")), "alerts[0].startsAt: 2027-01-15, allowed: a time"),
        (notification(alert(startsAt="2027-01-15T08:00:00")), "alerts[0].startsAt"),
        (notification(alert(startsAt="2027-13-15T08:00:00Z")), "alerts[0].startsAt"),
        (notification(alert("resolved", endsAt="soon")), "alerts[0].endsAt: soon"),
        (notification(version="x" * 5000), f"version: {'x' * 60}…, allowed"),
    ],
    ids=range(22),
)
def test_what_is_wrong_is_said_with_its_place_and_what_is_allowed(body: bytes, said: str) -> None:
    assert refused(body).startswith(said)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.dictionaries(st.sampled_from(list(alert())), JSON), st.sampled_from(["firing", "resolved"]))
def test_whatever_comes_is_read_or_refused_in_words(changes: dict[str, object], status: str) -> None:
    body = json.loads(notification(alert(status)))
    body["alerts"] = [{**body["alerts"][0], **changes}]
    with suppress(Malformed):
        assert len(read(json.dumps(body).encode())) == 1
