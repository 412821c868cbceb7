"""Whatever comes over the wire: no exception, the cause named, other queries untouched."""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controlplane.adapters.prometheus.client import Answer, Failure, PrometheusClient
from controlplane.domain.readings import Cause
from controlplane.settings import PrometheusSettings, SecretRef
from tests.adapters.prometheus.fake import (
    GOOD,
    FakePrometheus,
    Fault,
    drip,
    fake_prometheus,
    http,
    raw,
    vector,
)
from tests.support import free_port


@pytest.fixture
def server() -> Iterator[FakePrometheus]:
    with fake_prometheus() as fake:
        yield fake


@contextmanager
def client(
    url: str, timeout_s: float = 5.0, *, max_bytes: int = 100_000, bearer: Path | None = None
) -> Iterator[PrometheusClient]:
    secret = None if bearer is None else SecretRef(file=bearer)
    made = PrometheusClient(PrometheusSettings(url, timeout_s, timeout_s, bearer=secret), max_bytes)
    try:
        yield made
    finally:
        made.close()


def _error(kind: str, text: str) -> str:
    return json.dumps({"status": "error", "errorType": kind, "error": text})


def _data(**data: object) -> str:
    return json.dumps({"status": "success", "data": data})


HTML = "<html><body>Sign in to continue</body></html>"
CHUNKED = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
OPEN = "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n"
SAMPLE = '{{"status":"success","data":{{"resultType":"vector","result":[{}]}}}}'

FAILURES: dict[str, tuple[Fault, str]] = {
    "500 with a page": (http(HTML, "500 Internal Server Error"), "HTTP 500, not JSON"),
    "200 with a page": (http(HTML), "not JSON"),
    "503 with an error": (http(_error("unavailable", "starting"), "503 Service Unavailable"), "starting"),
    "422": (http(_error("execution", "many-to-many matching"), "422 Unprocessable"), "many-to-many"),
    "400": (http(_error("bad_data", "parse error"), "400 Bad Request"), "parse error"),
    "an error with 200": (http(_error("internal", "boom")), "boom"),
    "success with 500": (http(vector(), "500 Internal Server Error"), "HTTP 500"),
    "nothing at all": (http(""), "not JSON"),
    "half a JSON": (http(vector()[:-5]), "not JSON"),
    "a bare NaN": (http(SAMPLE.format('{"metric":{},"value":[NaN,"1"]}')), "not JSON"),
    "a JSON list": (http("[]"), "list where an object is due"),
    "no text": (http(b"\xff\xfe{}"), "not JSON"),
    "nested for ever": (http("[" * 50_000), "not JSON"),
    "an endless number": (http(SAMPLE.format('{"metric":{},"value":[' + "9" * 5000 + ',"1"]}')), "not JSON"),
    "a huge time": (
        http(SAMPLE.format('{"metric":{},"value":[' + "9" * 400 + ',"1"]}')),
        "beyond all clocks",
    ),
    "a time too long for a float": (
        http(SAMPLE.format('{"metric":{},"value":[1e400,"1"]}')),
        "beyond all clocks",
    ),
    "a time that is a truth": (http(SAMPLE.format('{"metric":{},"value":[true,"1"]}')), "unknown shape"),
    "a matrix": (http(_data(resultType="matrix", result=[])), "'matrix'"),
    "a scalar": (http(_data(resultType="scalar", result=[1, "1"])), "'scalar'"),
    "a string": (http(_data(resultType="string", result=[1, "x"])), "'string'"),
    "no data": (http('{"status":"success"}'), "no data"),
    "data null": (http('{"status":"success","data":null}'), "no data"),
    "no list": (http(_data(resultType="vector", result={"a": 1})), "dict where a list is due"),
    "a bare sample": (http(_data(resultType="vector", result=[7])), "unknown shape"),
    "a number as value": (http(SAMPLE.format('{"metric":{},"value":[1,1]}')), "unknown shape"),
    "a word as value": (http(vector(({}, "much"))), "'much' where a number is due"),
    "a Python number": (http(vector(({}, "1_000"))), "'1_000' where a number is due"),
    "a label that is a number": (http(SAMPLE.format('{"metric":{"a":1},"value":[1,"1"]}')), "no text"),
    "a histogram": (
        http(_data(resultType="vector", result=[{"metric": {}, "histogram": [1, {}]}])),
        "histogram",
    ),
    "a cut body": (http(vector(), length=9000), "IncompleteRead"),
    "a cut chunk": (raw(CHUNKED + "ff\r\n{"), ""),
    "a wrong chunk size": (raw(CHUNKED + "zz\r\n{"), ""),
    "broken gzip": (http(b"no gzip", headers="Content-Encoding: gzip\r\n"), ""),
    "too much": (http("x" * 200_000), "more than 100000 bytes"),
    "a bomb": (http(gzip.compress(b" " * 10**7), headers="Content-Encoding: gzip\r\n"), "more than 100000"),
    "hangs up": (raw(""), ""),
    "no HTTP": (raw("SSH-2.0-OpenSSH_9.2\r\n"), ""),
    "a redirect": (http("", "302 Found", "Location: http://127.0.0.1:9/login\r\n"), "not followed"),
}

HANGS: dict[str, Fault] = {
    "accepts and says nothing": raw("", then_wait=True),
    "headers, then nothing": raw(OPEN + "\r\n", then_wait=True),
    "one byte at a time": drip(OPEN + "\r\n"),
    "chunks of one byte, no end": drip(CHUNKED + "1388\r\n"),
    "headers one byte at a time": drip("HTTP/1.1 200 OK\r\nX-Slow: "),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_bad_answer_is_a_failure_of_its_query_alone(server: FakePrometheus, name: str) -> None:
    """B-056 and kin: a typed failure that says what came; the other query has its answer."""
    fault, told = FAILURES[name]
    server.faults["bad"] = fault
    with client(server.url) as prometheus:
        results = prometheus.ask({"queue": "bad", "gpus": "good"})
    bad, good = results["queue"], results["gpus"]
    assert isinstance(bad, Failure)
    assert bad.cause is Cause.QUERY_FAILED
    assert told in bad.detail
    assert isinstance(good, Answer)
    assert good.vector.samples[0].labels == {"who": "good"}


@pytest.mark.parametrize("name", HANGS)
def test_an_answer_that_does_not_end_is_broken_off_at_the_deadline(server: FakePrometheus, name: str) -> None:
    """B-059: were the deadline extended by bytes that trickle in, this would hang for ever."""
    server.faults["bad"] = HANGS[name]
    with client(server.url, timeout_s=0.6) as prometheus:
        first = prometheus.ask({"queue": "bad", "gpus": "good"})
        second = prometheus.ask({"queue": "good"})
    assert isinstance(first["queue"], Failure)
    assert first["queue"].cause is Cause.QUERY_TIMEOUT
    assert isinstance(first["gpus"], Answer)
    assert isinstance(second["queue"], Answer)


def test_answers_that_were_broken_off_hold_nothing_back_from_later_cycles(server: FakePrometheus) -> None:
    """More hanging queries than there are threads: each cycle gets its threads back."""
    server.faults["bad"] = HANGS["one byte at a time"]
    with client(server.url, timeout_s=0.4) as prometheus:
        for _ in range(3):
            prometheus.ask({str(number): "bad" for number in range(6)})
        assert isinstance(prometheus.ask({"q": "good"})["q"], Answer)


def test_a_server_that_ran_out_of_time_itself_is_a_timeout(server: FakePrometheus) -> None:
    server.faults["bad"] = http(_error("timeout", "query timed out"), "503 Service Unavailable")
    with client(server.url) as prometheus:
        result = prometheus.ask({"q": "bad"})["q"]
    assert isinstance(result, Failure)
    assert result.cause is Cause.QUERY_TIMEOUT


def test_nobody_listens(server: FakePrometheus) -> None:
    with client(f"http://127.0.0.1:{free_port()}") as prometheus:
        result = prometheus.ask({"q": "x"})["q"]
    assert isinstance(result, Failure)
    assert "refused" in result.detail


def test_a_failed_query_is_not_asked_again(server: FakePrometheus) -> None:
    """A retry belongs to the next cycle: within this one it eats the others' time."""
    server.faults["bad"] = http("", "503 Service Unavailable")
    with client(server.url) as prometheus:
        prometheus.ask({"q": "bad"})
    assert server.queries() == ["bad"]


def test_queries_are_posted_without_a_time_and_with_the_servers_own_deadline(server: FakePrometheus) -> None:
    """B-054: the server's clock decides what is now, whatever ours says."""
    with client(server.url, timeout_s=2.5) as prometheus:
        answer = prometheus.ask({"q": "sum(x)"})["q"]
    request = server.requests[0]
    assert request.line.startswith("POST /api/v1/query ")
    assert request.form == {"query": "sum(x)", "timeout": "2.5s"}
    assert isinstance(answer, Answer)
    assert answer.server_date == 1767225600.0


@pytest.mark.parametrize("prefix", ["", "/", "/prometheus", "/prometheus/"])
def test_a_prefix_of_the_address_is_kept(server: FakePrometheus, prefix: str) -> None:
    with client(server.url + prefix) as prometheus:
        prometheus.ask({"q": "x"})
    assert server.requests[0].line == f"POST {prefix.rstrip('/')}/api/v1/query HTTP/1.1"


@pytest.mark.parametrize("text", ["NaN", "+Inf", "-Inf", "Inf", "1e-07", "-3", ".5", "5."])
def test_every_number_that_prometheus_prints_is_read(server: FakePrometheus, text: str) -> None:
    server.faults["x"] = http(vector(({}, text)))
    with client(server.url) as prometheus:
        answer = prometheus.ask({"q": "x"})["q"]
    assert isinstance(answer, Answer)
    assert repr(answer.vector.samples[0].value) == repr(float(text))


def test_remarks_are_told_from_warnings(server: FakePrometheus) -> None:
    """B-051: infos leave the data complete, in whichever list a release puts them; warnings don't."""
    info = 'PromQL info: metric might not be a counter, name does not end in _total: "x"'
    partial = "No StoreAPIs matched for this query"
    server.faults["new"] = http(vector(infos=[info]))
    server.faults["old"] = http(vector(warnings=[info, partial]))
    server.faults["odd"] = http(vector(warnings="one text"))
    with client(server.url) as prometheus:
        answers = prometheus.ask({"new": "new", "old": "old", "odd": "odd"})
    remarks = {
        name: (answer.vector.warnings, answer.vector.notes)
        for name, answer in answers.items()
        if isinstance(answer, Answer)
    }
    assert remarks == {"new": ((), (info,)), "old": ((partial,), (info,)), "odd": (("one text",), ())}


SECRET = "s3cr3t/ü%"


def _echo(header: str) -> Fault:
    def answer(connection: object, server: FakePrometheus) -> None:
        sent = server.requests[-1].headers.get(header, "")
        http(f"bad credentials: {sent}", "401 Unauthorized")(connection, server)  # type: ignore[arg-type]

    return answer


def test_a_token_file_is_stripped_and_read_again(server: FakePrometheus, tmp_path: Path) -> None:
    """B-058: a newline at its end is no part of it, and tokens rotate."""
    token = tmp_path / "token"
    token.write_text("abc123\n")
    with client(server.url, bearer=token) as prometheus:
        prometheus.ask({"q": "x"})
        token.write_text("  def456 \r\n")
        prometheus.ask({"q": "x"})
        token.unlink()
        gone = prometheus.ask({"q": "x"})["q"]
    assert [request.headers["authorization"] for request in server.requests] == [
        "Bearer abc123",
        "Bearer def456",
    ]
    assert isinstance(gone, Failure)
    assert str(token) in gone.detail


def test_a_token_that_is_no_header_is_not_shown(server: FakePrometheus, tmp_path: Path) -> None:
    """The library's error quotes the whole header."""
    token = tmp_path / "token"
    token.write_text("abc\r\n123xyz")
    with client(server.url, bearer=token) as prometheus:
        result = prometheus.ask({"q": "x"})["q"]
    assert isinstance(result, Failure)
    assert "123xyz" not in result.detail
    assert not server.requests


@pytest.mark.parametrize("fault", ["echo", "hang", "refused", "html"])
def test_credentials_in_the_address_are_sent_and_never_shown(
    server: FakePrometheus, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    """B-189, B-190: not in errors, not in logs, not in a repr, though the server quotes them."""
    caplog.set_level(logging.DEBUG)
    faults = {
        "echo": _echo("authorization"),
        "hang": HANGS["headers, then nothing"],
        "html": http(f"<p>{SECRET}"),
    }
    server.faults["x"] = faults.get(fault, GOOD)
    host = f"127.0.0.1:{free_port()}" if fault == "refused" else server.url.removeprefix("http://")
    with client(f"http://ops:s3cr3t%2F%C3%BC%25@{host}", timeout_s=0.6) as prometheus:
        result = prometheus.ask({"q": "x"})["q"]
        shown = repr(result) + repr(vars(prometheus)["_session"]) + caplog.text
    assert isinstance(result, Failure)
    encoded = "b3BzOnMzY3IzdC/DvCU="
    assert [r.headers["authorization"] for r in server.requests] in ([], [f"Basic {encoded}"])
    for secret in (SECRET, "s3cr3t", encoded):
        assert secret not in shown


def test_a_redirect_is_not_followed_with_the_credentials(server: FakePrometheus, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("abc123")
    with fake_prometheus() as other, client(server.url, bearer=token) as prometheus:
        server.faults["x"] = http("", "307 Temporary Redirect", f"Location: {other.url}/api/v1/query\r\n")
        result = prometheus.ask({"q": "x"})["q"]
        assert isinstance(result, Failure)
        assert not other.requests


def test_an_environment_of_proxies_and_netrc_changes_nothing(
    server: FakePrometheus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A .netrc would replace the header that the settings say."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login a password b\n")
    (tmp_path / "token").write_text("abc123")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with client(server.url, bearer=tmp_path / "token") as prometheus:
        assert isinstance(prometheus.ask({"q": "x"})["q"], Answer)
    assert server.requests[0].headers["authorization"] == "Bearer abc123"


def test_remarks_are_masked_short_and_few(server: FakePrometheus, tmp_path: Path) -> None:
    """B-190: a peer may quote our header in a warning as well as in an error."""
    token = tmp_path / "token"
    token.write_text("abc123secret\n")
    said = [f"\x1b[31mgot Bearer abc123secret\n\ud800 {'x' * 5000}"] * 500
    server.faults["q"] = http(vector(warnings=said, infos=said))
    with client(server.url, bearer=token, max_bytes=10_000_000) as asker:
        answer = asker.ask({"q": "q"})["q"]
    assert isinstance(answer, Answer)
    for remarks in (answer.vector.warnings, answer.vector.notes):
        assert 0 < len(remarks) <= 20
        assert all("abc123secret" not in each and each.isprintable() and len(each) < 250 for each in remarks)


def test_an_error_type_that_is_no_text_is_told_as_an_error(server: FakePrometheus) -> None:
    server.faults["q"] = http(json.dumps({"status": "error", "errorType": ["x"], "error": "boom"}))
    with client(server.url) as asker:
        answer = asker.ask({"q": "q"})["q"]
    assert isinstance(answer, Failure)
    assert "boom" in answer.detail
