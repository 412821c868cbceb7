"""`POST /alerts`: who knows the token puts pages on record; nobody else, and nothing that is too much."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection
from pathlib import Path

import pytest

from controlplane.adapters.clock import SystemClock
from controlplane.loop.runner import Health
from controlplane.ports import Conflict, Notified, PortError, Unavailable
from controlplane.settings import SecretRef
from controlplane.telemetry.exporter import Exporter, Told
from controlplane.telemetry.http import Endpoint
from controlplane.telemetry.webhook import BODY_MAX, Webhook
from tests.builders import NOW
from tests.telemetry.notifications import TOKEN, alert, notification, post


class Kept:
    """The pages port, as a list; what was told before is no news."""

    def __init__(self) -> None:
        self.told: list[tuple[Notified, float]] = []
        self.fault: PortError | None = None

    def keep(self, notified: Sequence[Notified], at: float) -> Sequence[Notified]:
        if self.fault:
            raise self.fault
        before = [each for each, _ in self.told]
        self.told += [(each, at) for each in notified]
        return [each for each in notified if each not in before]


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "alerts-token"
    file.write_text(f"{TOKEN}\n")
    return file


@pytest.fixture
def told() -> Told:
    return Told("demo")


@pytest.fixture
def port(kept: Kept, token: Path, told: Told) -> Iterator[int]:
    webhook = Webhook(SecretRef(file=token), kept, "demo", lambda: NOW, told.paged)
    health = Health(SystemClock(), {})
    served = Endpoint("127.0.0.1", 0, Exporter(told, health), health, webhook)
    yield served.port
    served.close()


def raw(port: int, request: bytes) -> str:
    """Everything that comes back for exactly these bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=10.0) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


HEAD = f"POST /alerts HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n".encode()


def test_a_notification_with_the_token_is_kept(port: int, kept: Kept) -> None:
    assert kept.told == []
    assert post(port, notification(alert(), alert("resolved"))) == (200, "2 kept\n")
    assert [(each.alertname, each.status, at) for each, at in kept.told] == [
        ("P95OverTarget", "firing", NOW),
        ("P95OverTarget", "resolved", NOW),
    ]


def test_pages_are_counted_once_however_often_they_are_told(port: int) -> None:
    def counted() -> list[str]:
        connection = HTTPConnection("127.0.0.1", port, timeout=10.0)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return [line for line in text.splitlines() if line.startswith("trimtab_pages_total{")]

    assert counted() == []
    labels = 'alertname="P95OverTarget",cluster="demo",severity="page"'
    for _ in range(3):
        post(port, notification())
    assert counted() == [f'trimtab_pages_total{{{labels},status="firing"}} 1.0']
    post(port, notification(alert("resolved")))
    assert f'trimtab_pages_total{{{labels},status="resolved"}} 1.0' in counted()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"authorization": f"Bearer {TOKEN}x"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": TOKEN},
        {"authorization": "Bearer gr\u00fcn"},
    ],
    ids=str,
)
def test_without_the_token_nothing_is_kept_and_missing_or_wrong_is_not_told_apart(
    port: int, kept: Kept, headers: dict[str, str]
) -> None:
    answer = post(port, notification(), None, **headers)
    assert answer == (401, "a bearer token that is known here is required\n")
    assert kept.told == []


def test_the_schemes_name_may_be_in_any_case(port: int) -> None:
    assert post(port, notification(), None, authorization=f"bearer {TOKEN}")[0] == 200


def test_a_token_that_was_changed_is_in_force_at_once(port: int, token: Path) -> None:
    token.write_text("another\n")
    assert post(port, notification())[0] == 401
    assert post(port, notification(), "another")[0] == 200


@pytest.mark.parametrize("content", [None, "", " \n"])
def test_a_token_that_cannot_be_read_lets_nobody_in_and_is_named_by_its_place_in_the_log_alone(
    port: int, kept: Kept, token: Path, content: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    token.unlink() if content is None else token.write_text(content)
    for shown in (TOKEN, ""):
        status, said = post(port, notification(), shown)
        assert status == 503
        assert str(token) not in said
    assert kept.told == []
    assert str(token) in caplog.text


def test_another_method_is_refused_and_the_right_one_named(port: int) -> None:
    said = raw(port, b"GET /alerts HTTP/1.1\r\nhost: x\r\n\r\n")
    assert said.startswith("HTTP/1.0 405 Method Not Allowed")
    assert "allow: POST" in said


def test_a_wrong_token_is_told_how_to_show_one(port: int) -> None:
    said = raw(port, b"POST /alerts HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
    assert "www-authenticate: Bearer" in said


@pytest.mark.parametrize(
    "lengths",
    [
        b"",
        b"content-length: \r\n",
        b"content-length: -1\r\n",
        b"content-length: +5\r\n",
        b"content-length: 1e3\r\n",
        b"content-length: \xb2\r\n",
        b"content-length: 99999999999999999999\r\n",
        b"transfer-encoding: chunked\r\n",
        b"transfer-encoding: chunked\r\ncontent-length: 2\r\n",
    ],
)
def test_a_length_that_is_not_said_or_no_number_is_never_guessed(
    port: int, kept: Kept, lengths: bytes
) -> None:
    said = raw(port, HEAD + lengths + b"\r\n")
    assert said.startswith("HTTP/1.0 411 Length Required")
    assert said.endswith("Content-Length is required, and no chunks\n")
    assert kept.told == []


def padded(size: int) -> bytes:
    body = notification()
    return body + b" " * (size - len(body))


def test_a_body_of_a_mebibyte_is_taken_and_one_byte_more_is_not(port: int, kept: Kept) -> None:
    assert post(port, padded(BODY_MAX))[0] == 200
    status, said = post(port, padded(BODY_MAX + 1))
    assert (status, said) == (413, "the body: 1048577 bytes, allowed: at most 1048576\n")
    assert len(kept.told) == 1


def test_a_length_that_is_a_lie_is_believed_by_nobody(port: int, kept: Kept) -> None:
    body = notification()
    short = raw(port, HEAD + f"content-length: {len(body) + 1}\r\n\r\n".encode() + body)
    assert short.startswith("HTTP/1.0 400 Bad Request")
    assert short.endswith(f"the body ended after {len(body)} of {len(body) + 1} bytes\n")
    assert kept.told == []
    assert raw(port, HEAD + f"content-length: {len(body)}\r\n\r\n".encode() + body + b"more").startswith(
        "HTTP/1.0 200"
    )


def test_a_body_that_stops_coming_is_let_go(port: int, kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.telemetry.page._Quiet.timeout", 0.1)
    with socket.create_connection(("127.0.0.1", port), timeout=10.0) as silent:
        silent.sendall(HEAD + b"content-length: 10\r\n\r\n{")
        said = b"".join(iter(lambda: silent.recv(65536), b"")).decode()
    assert said.startswith("HTTP/1.0 408 Request Timeout")
    assert kept.told == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the body: not JSON in UTF-8\n"),
        (b"{", "the body: not JSON in UTF-8\n"),
        (notification(version="3"), 'version: 3, allowed: "4"\n'),
        (notification(alert(), alert("pending")), "alerts[1].status: pending, allowed: firing or resolved\n"),
    ],
)
def test_what_is_no_notification_is_refused_in_words_and_whole(
    port: int, kept: Kept, body: bytes, said: str
) -> None:
    assert post(port, body) == (400, said)
    assert kept.told == []


@pytest.mark.parametrize("fault", [Unavailable("the disk is full at /var/db"), Conflict("refused")])
def test_while_the_record_is_away_the_answer_says_again_and_the_next_try_is_kept(
    port: int, kept: Kept, fault: PortError
) -> None:
    kept.fault = fault
    assert post(port, notification()) == (503, "the record cannot be written now; send it again\n")
    kept.fault = None
    assert post(port, notification()) == (200, "1 kept\n")


def test_no_secret_is_in_any_answer_log_or_repr(
    port: int, kept: Kept, token: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    kept.fault = Unavailable("away")
    said = [post(port, body, shown) for body in (b"{", notification()) for shown in (TOKEN, f"{TOKEN}x")]
    assert {status for status, _ in said} == {400, 401, 503}
    assert TOKEN not in caplog.text + str(said) + repr(SecretRef(file=token))


def test_callers_at_once_are_all_kept(port: int, kept: Kept) -> None:
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda: answers.append(post(port, notification())[0])) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 8
    assert len(kept.told) == 8


def test_without_the_setting_the_path_is_not_there_and_says_what_is_needed() -> None:
    health = Health(SystemClock(), {})
    served = Endpoint("127.0.0.1", 0, Exporter(Told("demo"), health), health)
    try:
        status, said = post(served.port, notification())
    finally:
        served.close()
    assert status == 404
    assert "webhook: {token_file: PATH}" in said
