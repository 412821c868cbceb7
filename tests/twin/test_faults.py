"""Faults on command, before and after, over real sockets."""

from __future__ import annotations

import http.client
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from controlplane.cli.twin import command
from controlplane.twin.live.faults import HELP, FaultKind
from tests.support import eventually
from tests.twin.world import CHAT, Twin, ask, body, streaming, twin_running

pytestmark = pytest.mark.xdist_group("twin")


def test_a_slow_card_takes_longer_a_throttled_one_shows_its_clock(twin: Twin) -> None:
    node, healthy = twin.instance("chat-8b-03")["node"], twin.step_s("chat-8b-03")
    assert twin.card(node, "DCGM_FI_DEV_SM_CLOCK", "2") == 1980
    for kind, clock in (("slow", 1980), ("throttle", 1095)):
        assert twin.order(kind, "chat-8b-03", factor=0.5)[0] == 201
        assert twin.step_s("chat-8b-03") == pytest.approx(2 * healthy, rel=0.02)
        assert twin.card(node, "DCGM_FI_DEV_SM_CLOCK", "2") == clock
    twin.clear("chat-8b-03")
    assert twin.step_s("chat-8b-03") == pytest.approx(healthy, rel=0.02)


def test_a_frozen_answer_repeats_its_bytes_while_the_engine_serves_on(twin: Twin) -> None:
    address = twin.address("chat-8b-04")
    before = twin.get("/metrics", address)
    assert twin.complete("chat-8b-04", 5)[0] == 200
    assert twin.get("/metrics", address) != before
    twin.order("frozen", "chat-8b-04")
    frozen = twin.get("/metrics", address)
    assert twin.complete("chat-8b-04", 5)[0] == 200
    assert twin.get("/metrics", address) == frozen
    twin.clear("chat-8b-04")
    assert twin.get("/metrics", address) != frozen


def test_a_liar_claims_to_be_idle_and_fast(twin: Twin) -> None:
    honest = twin.step_s("chat-8b-05")
    twin.order("lying", "chat-8b-05")
    assert twin.step_s("chat-8b-05") == pytest.approx(honest / 10, rel=0.05)
    twin.clear("chat-8b-05")


def silent(address: str, method: str, path: str, sent: Any = None) -> bool:
    """Whether a request is taken and not answered."""
    connection = http.client.HTTPConnection(address, timeout=0.3)
    try:
        connection.request(method, path, None if sent is None else json.dumps(sent))
        connection.getresponse()
    except TimeoutError:
        return True
    finally:
        connection.close()
    return False


def test_a_hanging_instance_takes_requests_and_answers_none_until_it_is_cleared(twin: Twin) -> None:
    slot, address = "chat-8b-06", twin.address("chat-8b-06")
    asked = [("GET", path, None) for path in ("/health", "/metrics", "/v1/models")]
    assert all(ask(address, *each)[0] == 200 for each in asked)
    twin.order("hang", slot)
    assert all(silent(address, *each) for each in asked)
    assert silent(address, "POST", CHAT, body(5))
    eventually(lambda: twin.json("/truth")["broken_requests"].get(slot) == 1, 10)
    twin.clear(slot)
    assert all(ask(address, *each)[0] == 200 for each in asked)
    assert twin.complete(slot, 5)[0] == 200


def test_a_stream_stands_still_while_its_instance_hangs_and_then_comes_whole(twin: Twin) -> None:
    slot = "chat-8b-08"
    with streaming(twin.address(slot), 250) as answer:
        twin.order("hang", slot)
        assert silent(twin.address(slot), "GET", "/metrics")
        twin.clear(slot)
        text = answer.read().decode()
    assert text.endswith("data: [DONE]\n\n")
    assert '"completion_tokens": 250' in text
    assert twin.value(slot, "vllm:num_requests_running") == 0
    assert twin.value(slot, "vllm:generation_tokens_total") == 250


def test_a_crash_cuts_its_answers_and_comes_back_as_another_instance_at_the_same_address(twin: Twin) -> None:
    slot = "chat-8b-07"
    before = twin.instance(slot)
    with streaming(before["address"], 5000) as answer:
        whole = http.client.HTTPConnection(before["address"], timeout=20)
        whole.request("POST", CHAT, json.dumps(body(5000, stream=False)))
        eventually(lambda: twin.value(slot, "vllm:num_requests_running") == 2, 10)
        assert twin.order("crash", slot)[0] == 201
        for cut in (answer.read, whole.getresponse):
            with pytest.raises((http.client.IncompleteRead, ConnectionError)):
                cut()
        whole.close()
    eventually(lambda: twin.instance(slot)["phase"] == "serving", 20)
    after = twin.instance(slot)
    assert after["address"] == before["address"]
    assert after["instance_id"] != before["instance_id"]
    assert after["instance_id"] in {each["labels"]["instance_id"] for each in twin.json("/sd/engines")}
    assert twin.value(slot, "vllm:generation_tokens_total") == 1  # its warm-up
    assert twin.json("/truth")["broken_requests"][slot] == 2


def test_while_an_instance_loads_its_port_is_refused_and_it_cannot_be_broken(tmp_path: Path) -> None:
    log = tmp_path / "twin.log"
    with twin_running(log, "--cold-start", "3600") as (own, process):
        address = own.address("chat-8b-01")
        assert own.order("crash", "chat-8b-01")[0] == 201
        assert own.instance("chat-8b-01")["phase"] == "loading"
        assert own.instance("chat-8b-01")["ready_at"] is None
        eventually(lambda: refused(address), 10)
        status, said = own.order("slow", "chat-8b-01")
        assert status == 409
        assert said["error"] == "chat-8b-01 is loading: nothing runs there that could break"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert len(log.read_text("utf-8").splitlines()) == 1


def refused(address: str) -> bool:
    try:
        ask(address, "GET", "/health")
    except ConnectionRefusedError:
        return True
    return False


def test_a_fault_ends_by_itself_or_with_the_next_one_and_the_truth_says_when(twin: Twin) -> None:
    slot = "chat-8b-09"
    twin.order("slow", slot)
    twin.order("lying", slot, for_s=0.1)
    eventually(lambda: slot not in {each["slot"] for each in twin.json("/faults")}, 10)
    first, second = (each for each in twin.json("/truth")["faults"] if each["slot"] == slot)
    assert (first["kind"], second["kind"]) == ("slow", "lying")
    assert first["since"] <= first["cleared_at"] <= second["since"] + 1 <= second["cleared_at"] + 1


def test_the_command_orders_shows_and_clears_a_fault(twin: Twin) -> None:
    def run(*words: str) -> Any:
        return CliRunner().invoke(command, ["fault", *words, "--port", twin.control.rpartition(":")[2]])

    slot = "chat-8b-10"
    assert run(slot, "--clear").exit_code == 0
    assert slot not in run("--list", "--json").stdout
    ordered = run("slow", slot, "--factor", "0.8", "--json")
    assert json.loads(ordered.stdout)["factor"] == 0.8
    assert slot in run("--list").stdout
    assert run(slot, "--clear", "--json").stdout == f'{{"cleared": "{slot}"}}\n'
    assert slot not in run("--list", "--json").stdout
    for wrong, says in (
        (("melt", slot), "Kinds: slow, throttle"),
        (("slow", "nobody"), "unknown instance 'nobody'"),
        (("--clear",), "--clear needs the INSTANCE"),
    ):
        refused = run(*wrong)
        assert refused.exit_code == 2
        assert says in refused.stderr


def test_every_kind_of_fault_is_explained() -> None:
    assert set(HELP) == set(FaultKind)


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        ({"kind": "melt", "instance": "chat-8b-01"}, "known: slow, throttle, hang, crash, lying, frozen"),
        ({"kind": ["slow"], "instance": "chat-8b-01"}, "unknown kind ['slow']"),
        ({"kind": "slow", "instance": "nobody"}, "unknown instance 'nobody'; known: batch-eval-01"),
        ({"kind": "slow", "instance": "chat-8b-01", "factor": 9}, "factor is 9; allowed 0.05..2"),
        ({"kind": "slow", "instance": "chat-8b-01", "speed": 1}, "unknown fields ['speed']"),
    ],
)
def test_a_wrong_order_is_refused_in_words_and_does_nothing(
    twin: Twin, sent: dict[str, Any], says: str
) -> None:
    status, raw = ask(twin.control, "POST", "/faults", sent)
    assert status == 400
    assert says in json.loads(raw)["error"]
    assert twin.json("/faults") == []


@pytest.mark.parametrize("raw", ["", "{", "[" * 100_000, "\xff", "9" * 5000])
@pytest.mark.parametrize("charset", ["", "; charset=utf-8", "; charset=nonsense"])
def test_an_order_that_is_no_json_is_a_bad_request_whatever_its_charset(
    twin: Twin, raw: str, charset: str
) -> None:
    connection = http.client.HTTPConnection(twin.control, timeout=20)
    connection.request(
        "POST", "/faults", raw.encode("latin-1"), {"content-type": f"application/json{charset}"}
    )
    with connection.getresponse() as answer:
        assert answer.status == 400
        assert "not JSON" in json.loads(answer.read())["error"]
    connection.close()
