"""The write half of the twin's orchestrator over real sockets: levels in, truth out."""

from __future__ import annotations

import http.client
import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from controlplane.cli.twin import command
from controlplane.twin.live.orchestrator import WHIM_HELP, Whim
from tests.support import eventually
from tests.twin.world import CHAT, Twin, ask, body, streaming, twin_running

pytestmark = pytest.mark.xdist_group("twin")

UP = ["requested", "loading", "healthy", "warming", "serving"]
ON_N2, ON_N6 = ({"pool": "chat-8b", "node": node} for node in ("n2", "n6"))


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    """A twin whose fleet these tests change: each takes GPUs of its own."""
    log = tmp_path_factory.mktemp("orders") / "twin.log"
    with twin_running(log, "--wake", "0.1", "--host-memory", "79") as (started, process):
        yield started
    assert process.returncode == 0
    assert len(log.read_text("utf-8").splitlines()) == 1


def until(own: Twin, slot: str, phase: str) -> None:
    eventually(lambda: own.phase(slot) == phase, 20, because=f"{slot} is {phase}")


def served(own: Twin, slot: str, **spec: Any) -> str:
    """A new instance that serves; its id."""
    name = f"demo/{slot}@t3x1ab"
    assert own.want(name, "awake", **spec) == (200, {"changed": True, "phase": "requested"})
    until(own, slot, "serving")
    return name


def fleet(own: Twin) -> Any:
    found = own.json("/inventory")
    return found["nodes"], found["instances"]


def listed(own: Twin) -> set[str]:
    return {each["labels"]["instance_id"] for each in own.json("/sd/engines")}


def test_a_new_instance_has_the_id_it_was_given_and_serves_once_its_warm_up_was_answered(own: Twin) -> None:
    name, card = "demo/chat-8b-13@t3x1ab", ("n2", "DCGM_FI_DEV_FB_USED", "4")
    assert own.card(*card) == 0
    assert own.want(name, "awake", gpus=[4], **ON_N2)[1] == {"changed": True, "phase": "requested"}
    row = own.instance("chat-8b-13")
    assert (row["instance_id"], row["ready_at"]) == (name, None)
    assert name not in listed(own)
    until(own, "chat-8b-13", "serving")
    row = own.instance("chat-8b-13")
    assert row["started_at"] == int("t3x1ab", 36)
    assert row["ready_at"] is not None
    assert (row["gpus"], row["tp"], row["managed"], row["lent_by"]) == ([4], 1, True, None)
    assert own.lived("chat-8b-13") == UP
    assert own.value("chat-8b-13", "vllm:generation_tokens_total") == 1
    assert own.card(*card) == round(0.9 * 81_559)
    assert name in listed(own)
    assert own.complete("chat-8b-13", 5)[0] == 200


def test_the_same_order_again_changes_nothing(own: Twin) -> None:
    name = served(own, "chat-8b-14", gpus=[4], **ON_N6)
    before = fleet(own)
    for more in ({}, {"gpus": [4], **ON_N6}):
        assert own.want(name, "awake", **more) == (200, {"changed": False, "phase": "serving"})
    assert fleet(own) == before
    told = [each for each in own.json("/orders") if each["instance_id"] == name]
    assert [(each["action_id"], each["state"], each["changed"]) for each in told] == [
        ("a-1", "awake", True),
        ("a-1", "awake", False),
        ("a-1", "awake", False),
    ]


def test_one_that_falls_asleep_cuts_its_streams_refuses_at_once_and_serves_again_when_woken(
    own: Twin,
) -> None:
    slot, name = "chat-8b-15", served(own, "chat-8b-15", gpus=[6], **ON_N2)
    address, ready_at = own.address(slot), own.instance(slot)["ready_at"]
    with streaming(address, 5000) as answer:
        assert own.want(name, "asleep") == (200, {"changed": True, "phase": "draining"})
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            answer.read()
    assert own.json("/truth")["evicted_requests"][slot] == 1
    until(own, slot, "asleep")
    status, said = ask(address, "POST", CHAT, body(5))
    assert (status, json.loads(said)["error"]["type"]) == (503, "ServiceUnavailableError")
    assert ask(address, "GET", "/health")[0] == 200
    assert own.value(slot, "vllm:engine_sleep_state", sleep_state="weights_offloaded") == 1
    assert own.value(slot, "vllm:num_requests_running") == own.value(slot, "vllm:kv_cache_usage_perc") == 0
    assert name in listed(own)
    assert own.card("n2", "DCGM_FI_DEV_FB_USED", "6") == round(0.1 * 81_559)
    assert own.instance(slot)["ready_at"] == ready_at
    assert own.want(name, "awake") == (200, {"changed": True, "phase": "waking"})
    until(own, slot, "serving")
    assert own.instance(slot)["ready_at"] > ready_at
    assert own.lived(slot) == [*UP, "draining", "asleep", "waking", "warming", "serving"]
    assert own.value(slot, "vllm:engine_sleep_state", sleep_state="awake") == 1
    assert own.complete(slot, 5)[0] == 200


def test_one_that_is_gone_stays_listed_its_gpus_are_free_and_a_new_start_may_take_its_slot(own: Twin) -> None:
    slot, name = "chat-8b-16", served(own, "chat-8b-16", gpus=[5], **ON_N6)
    address = own.address(slot)
    assert own.want(name, "gone") == (200, {"changed": True, "phase": "draining"})
    until(own, slot, "gone")
    with pytest.raises(ConnectionRefusedError):
        ask(address, "GET", "/health")
    assert name not in listed(own)
    assert own.card("n6", "DCGM_FI_DEV_FB_USED", "5") == 0
    assert own.want(name, "gone") == (200, {"changed": False, "phase": "gone"})
    status, said = own.want(name, "awake")
    assert (status, said["error"].partition(",")[0]) == (409, f"{name} is gone")
    again = "demo/chat-8b-16@t3x1ac"
    assert own.want(again, "awake", gpus=[5], **ON_N6)[0] == 200
    rows = [each for each in own.json("/inventory")["instances"] if f"/{slot}@" in each["instance_id"]]
    assert {each["instance_id"]: each["phase"] == "gone" for each in rows} == {name: True, again: False}
    assert own.want(again, "gone")[0] == 200


def test_of_many_that_want_one_gpu_at_once_one_gets_it(own: Twin) -> None:
    names = [f"demo/chat-8b-{number}@t3x1ab" for number in range(30, 38)]
    with ThreadPoolExecutor(len(names)) as callers:
        asked = [callers.submit(own.want, name, "awake", gpus=[6], **ON_N6) for name in names]
    told = {name: each.result() for name, each in zip(names, asked, strict=True)}
    (winner,) = (name for name, (status, _) in told.items() if status == 200)
    for name, (status, said) in told.items():
        if name != winner:
            assert status == 409
            assert said["error"].startswith(f"GPU 6 of n6 is held by {winner} (")
    assert {each["instance_id"] for each in fleet(own)[1]} & set(names) == {winner}
    assert own.want(winner, "gone")[0] == 200
    until(own, winner[5:].partition("@")[0], "gone")


def test_one_that_loads_can_be_told_to_go_and_never_serves(own: Twin) -> None:
    slot, name = "vision-09", "demo/vision-09@t3x1ab"
    assert own.want(name, "awake", pool="vision", node="n6", gpus=[6, 7])[0] == 200
    assert own.want(name, "gone") == (200, {"changed": True, "phase": "draining"})
    until(own, slot, "gone")
    assert [each for each in own.lived(slot) if each not in {"requested", "loading"}] == ["draining", "gone"]


def test_an_order_for_what_is_not_adopted_is_refused_until_it_is(own: Twin) -> None:
    name = own.instance("chat-8b-12")["instance_id"]
    assert own.instance("chat-8b-12")["managed"] is False
    status, said = own.want(name, "asleep")
    assert (status, said["error"]) == (409, f"{name} is not managed here: adopt it first")
    assert own.phase("chat-8b-12") == "serving"
    adoption = {"action_id": "a-2", "instance_id": name}
    assert [own.put("/adopt", adoption) for _ in range(2)] == [
        (200, {"changed": True}),
        (200, {"changed": False}),
    ]
    assert own.instance("chat-8b-12")["managed"] is True
    assert own.want(name, "asleep")[0] == 200
    assert own.put("/adopt", {"action_id": "a-2", "instance_id": "demo/nobody@1"})[0] == 404


def test_a_sleeper_wakes_only_once_the_offline_work_on_its_gpu_is_gone_and_leaves_host_memory_free(
    own: Twin,
) -> None:
    offline, online = (own.instance(slot)["instance_id"] for slot in ("batch-eval-02", "chat-8b-s02"))
    for phase in ("serving", "draining"):
        status, said = own.want(online, "awake")
        assert (status, said["error"]) == (409, f"GPU 1 of n6 is held by {offline} ({phase})")
        own.want(offline, "gone")
    until(own, "batch-eval-02", "gone")
    neighbour = own.instance("batch-eval-01")["instance_id"]
    status, said = own.want(neighbour, "asleep")
    assert (status, said["error"].partition(",")[0]) == (409, "n6 has 79 GiB of host memory for sleepers")
    assert own.phase("batch-eval-01") == "serving"
    assert own.want(online, "awake") == (200, {"changed": True, "phase": "waking"})
    until(own, "chat-8b-s02", "serving")
    assert own.card("n6", "DCGM_FI_DEV_FB_USED", "1") == round(0.9 * 81_559)
    assert own.card("n6", "DCGM_FI_DEV_FB_USED", "0") == 81_559  # a tenth of it is the sleeper's
    assert own.want(neighbour, "asleep")[0] == 200  # there is room now


def test_a_warm_up_that_is_not_answered_keeps_an_instance_from_serving(own: Twin) -> None:
    slot, name = "chat-8b-20", "demo/chat-8b-20@t3x1ab"
    assert own.want(name, "asleep", gpus=[5], **ON_N2)[0] == 200
    until(own, slot, "asleep")
    assert own.lived(slot) == ["requested", "loading", "healthy", "draining", "asleep"]
    assert own.order("hang", slot)[0] == 201
    assert own.want(name, "awake")[0] == 200
    until(own, slot, "warming")
    assert own.instance(slot)["ready_at"] is None
    own.clear(slot)
    until(own, slot, "serving")
    assert own.want(name, "gone")[0] == 200
    until(own, slot, "gone")


def test_one_that_hangs_can_be_ended_and_its_fault_ends_with_it(own: Twin) -> None:
    slot, name = "chat-8b-22", served(own, "chat-8b-22", gpus=[5], **ON_N2)

    def ended() -> list[bool]:
        return [
            each["cleared_at"] is not None for each in own.json("/truth")["faults"] if each["slot"] == slot
        ]

    assert own.order("hang", slot)[0] == 201
    assert ended() == [False]
    unanswered = http.client.HTTPConnection(own.address(slot), timeout=20)
    unanswered.request("GET", "/health")
    assert own.want(name, "gone")[0] == 200
    until(own, slot, "gone")
    with pytest.raises(ConnectionError):
        unanswered.getresponse()
    unanswered.close()
    assert ended() == [True]
    assert slot not in {each["slot"] for each in own.json("/faults")}


def test_one_that_crashed_and_is_told_to_go_while_it_comes_back_is_gone(own: Twin) -> None:
    slot = "chat-8b-23"
    served(own, slot, gpus=[5], **ON_N2)
    assert own.order("crash", slot)[0] == 201
    again = own.instance(slot)["instance_id"]
    assert own.want(again, "gone") == (200, {"changed": True, "phase": "draining"})
    until(own, slot, "gone")
    assert own.lived(slot)[-4:] == ["gone", "loading", "draining", "gone"]
    with pytest.raises(ConnectionRefusedError):
        ask(own.address(slot), "GET", "/health")


def test_sigterm_ends_it_also_with_orders_under_way(tmp_path: Path) -> None:
    log = tmp_path / "twin.log"
    with twin_running(log, "--cold-start", "3600", "--wake", "3600") as (other, process):
        other.want("demo/chat-8b-13@t3x1ab", "awake", gpus=[4], **ON_N2)
        assert other.want(other.instance("batch-eval-01")["instance_id"], "gone")[0] == 200
        until(other, "batch-eval-01", "gone")
        assert other.want(other.instance("chat-8b-s01")["instance_id"], "awake")[0] == 200
        assert {other.phase("chat-8b-13"), other.phase("chat-8b-s01")} == {"loading", "waking"}
        ask(other.control, "POST", "/orchestrator", {"kind": "silent"})
        unanswered = http.client.HTTPConnection(other.control, timeout=20)
        unanswered.request("PUT", "/instances", "{}")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        unanswered.close()
    assert len(log.read_text("utf-8").splitlines()) == 1


def test_a_sleeper_that_crashes_sleeps_again_after_its_cold_start(own: Twin) -> None:
    slot, name = "chat-8b-21", "demo/chat-8b-21@t3x1ab"
    assert own.want(name, "asleep", gpus=[7], **ON_N2)[0] == 200
    until(own, slot, "asleep")
    assert own.order("crash", slot)[0] == 201
    assert own.instance(slot)["instance_id"] != name
    assert own.phase(slot) == "loading"
    until(own, slot, "asleep")
    assert own.lived(slot)[-5:] == ["gone", "loading", "healthy", "draining", "asleep"]
    assert own.want(own.instance(slot)["instance_id"], "gone")[0] == 200


REFUSED = [
    ({"state": "hot"}, 400, "state is 'hot'; allowed: awake, asleep, gone"),
    ({"state": ["gone"]}, 400, "state is ['gone']"),
    ({"action_id": ""}, 400, "action_id is ''; 1 to 200 visible characters"),
    ({"instance_id": "demo/x"}, 400, "allowed: demo/<slot>@<start>"),
    ({"instance_id": "other/x@1"}, 400, "instance_id is 'other/x@1'"),
    ({"instance_id": "demo/x@01"}, 400, "a start in base 36"),
    ({"instance_id": 7}, 400, "instance_id is 7"),
    ({"more": 1}, 400, "the body has unknown fields ['more']"),
    ({"spec": "n2"}, 400, "spec is 'n2'; an object with gpus, lent_by, node, pool"),
    ({"spec": {"pool": "chat-8b", "node": "n2", "gpus": []}}, 400, "spec.gpus is []"),
    ({"spec": {"pool": "chat-8b", "node": "n2", "gpus": [True]}}, 400, "spec.gpus is [True]"),
    ({"spec": {"pool": "chat-8b", "node": "n2", "gpus": [1, 1]}}, 400, "spec.gpus is [1, 1]"),
    ({"spec": {"pool": "Chat 8B", "node": "n2", "gpus": [1]}}, 400, "spec.pool is 'Chat 8B'"),
    ({"spec": {"pool": "chat-8b", "node": "n2", "gpus": [1], "lent_by": 3}}, 400, "spec.lent_by is 3"),
    ({"spec": {"pool": "chat-8b", "node": "n2", "gpus": [8]}}, 409, "n2 has no GPU 8; allowed 0..7"),
    (
        {"spec": {"pool": "chat-8b", "node": "n2", "gpus": [0]}},
        409,
        "GPU 0 of n2 is held by demo/chat-8b-09@",
    ),
    ({"spec": {"pool": "vision", "node": "n2", "gpus": [0]}}, 409, "an instance of vision has 2"),
    ({"spec": {"pool": "gpt", "node": "n2", "gpus": [0]}}, 409, "unknown 'gpt'; known: batch-eval, chat-8b"),
    ({"spec": {"pool": "chat-8b", "node": "n7", "gpus": [0]}}, 409, "unknown 'n7'; known: n1, n2"),
    ({"spec": None}, 409, "is unknown, so its spec is needed"),
]


@pytest.mark.parametrize(("wrong", "status", "says"), REFUSED)
def test_a_wrong_order_is_refused_in_words_and_does_nothing(
    twin: Twin, wrong: dict[str, Any], status: int, says: str
) -> None:
    right = {"action_id": "a-9", "instance_id": "demo/chat-8b-99@t3x1ab", "state": "awake", "spec": None}
    before = fleet(twin)
    found, said = twin.put("/instances", right | wrong)
    assert (found, says in said["error"]) == (status, True), said
    assert fleet(twin) == before
    assert twin.json("/orders") == []


@pytest.mark.parametrize("path", ["/instances", "/adopt", "/orchestrator"])
def test_what_is_no_json_object_is_a_bad_order(twin: Twin, path: str) -> None:
    method = "POST" if path == "/orchestrator" else "PUT"
    nothing: list[object] = [[], "gone", None]
    for sent in nothing:
        assert ask(twin.control, method, path, sent)[0] == 400
    connection = http.client.HTTPConnection(twin.control, timeout=20)
    connection.request(method, path, b"{")
    with connection.getresponse() as answer:
        assert answer.status == 400
    connection.close()


def test_a_deaf_orchestrator_says_yes_and_does_nothing(twin: Twin) -> None:
    name, before = twin.instance("batch-eval-04")["instance_id"], fleet(twin)
    assert ask(twin.control, "POST", "/orchestrator", {"kind": "deaf"})[0] == 200
    assert twin.json("/orchestrator")["kind"] == "deaf"
    assert twin.want(name, "gone") == (200, {"changed": True, "phase": "serving"})
    assert twin.put("/adopt", {"action_id": "a", "instance_id": name})[0] == 200
    assert ask(twin.control, "POST", "/orchestrator", {"kind": "none"})[0] == 200
    assert fleet(twin) == before
    assert twin.json("/orders") == []


def test_a_silent_orchestrator_answers_no_order_does_none_and_lists_on(twin: Twin) -> None:
    name, before = twin.instance("batch-eval-04")["instance_id"], fleet(twin)
    sent = json.dumps({"action_id": "a", "instance_id": name, "state": "gone"})
    connection = http.client.HTTPConnection(twin.control, timeout=20)
    assert ask(twin.control, "POST", "/orchestrator", {"kind": "silent", "for_s": 0.5})[0] == 200
    connection.request("PUT", "/instances", sent)
    assert fleet(twin) == before
    with pytest.raises(ConnectionError):
        connection.getresponse()
    connection.close()
    assert twin.json("/orchestrator")["kind"] == "none"
    assert fleet(twin) == before
    assert twin.json("/orders") == []


def test_the_command_breaks_the_orchestrator_and_shows_how_it_is(twin: Twin) -> None:
    def run(*words: str) -> Any:
        port = twin.control.rpartition(":")[2]
        return CliRunner().invoke(command, ["orchestrator", *words, "--port", port, "--json"])

    assert json.loads(run().stdout)["kind"] == "none"
    broken = json.loads(run("deaf", "--for", "60").stdout)
    assert (broken["kind"], broken["until"] - broken["since"]) == ("deaf", pytest.approx(60))
    assert json.loads(run().stdout) == broken
    assert json.loads(run("none").stdout)["kind"] == "none"
    assert run("blind").exit_code == 2
    assert run("deaf", "--for", "1e9").exit_code == 2


def test_every_fault_of_the_orchestrator_is_explained() -> None:
    assert set(WHIM_HELP) == set(Whim)
