"""The page answers, and ends, whatever its callers do."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import requests

from controlplane.telemetry.page import CONNECTIONS_MAX, Page


def hello(_: dict[str, Any], start: Any) -> Iterable[bytes]:
    start("200 OK", [("content-type", "text/plain")])
    return [b"hello"]


@pytest.fixture
def page() -> Iterator[Page]:
    served = Page("127.0.0.1", 0, hello, "metrics")
    yield served
    served.close()


def get(page: Page) -> str:
    return requests.get(f"http://127.0.0.1:{page.port}/metrics", timeout=3).text


def test_callers_that_say_nothing_keep_nobody_from_an_answer(page: Page) -> None:
    with ExitStack() as silent:
        for _ in range(3 * CONNECTIONS_MAX):
            silent.enter_context(socket.create_connection(("127.0.0.1", page.port), timeout=3))
        assert get(page) == "hello"


def test_a_caller_that_says_nothing_does_not_hold_up_the_end() -> None:
    page = Page("127.0.0.1", 0, hello, "metrics")
    with socket.create_connection(("127.0.0.1", page.port), timeout=3) as silent:
        silent.sendall(b"GET /metrics HT")
        assert get(page) == "hello"
        began = time.monotonic()
        page.close()
        assert time.monotonic() - began < 3


def test_it_can_be_served_over_ipv6() -> None:
    page = Page("::1", 0, hello, "metrics")
    try:
        assert requests.get(f"http://[::1]:{page.port}/", timeout=3).text == "hello"
    finally:
        page.close()
