"""The live twin over real sockets: what a caller, Prometheus and an inventory meet."""

from __future__ import annotations

import http.client
import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support import eventually, running
from tests.twin.world import CHAT, TWIN, Twin, ask, body, streaming, twin_running

pytestmark = pytest.mark.xdist_group("twin")


def test_a_streamed_answer_comes_whole_first_token_apart(twin: Twin) -> None:
    status, raw = twin.complete("chat-8b-01", 40)
    events = [line.removeprefix("data: ") for line in raw.decode().split("\n\n") if line]
    assert status == 200
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    texts = [each["choices"][0]["delta"].get("content", "") for each in chunks if each["choices"]]
    assert texts[0].count(" t") == 1
    assert "".join(texts).count(" t") == 40
    assert chunks[-1]["usage"] == {"prompt_tokens": 200, "completion_tokens": 40, "total_tokens": 240}


def test_an_answer_can_come_in_one_piece_and_as_plain_completion(twin: Twin) -> None:
    whole = json.loads(twin.complete("chat-8b-01", 5, stream=False)[1])
    assert whole["choices"][0]["message"]["content"].count(" t") == 5
    plain = {"model": "llama-3.1-8b", "prompt": "one two three four", "max_tokens": 3}
    answer = json.loads(ask(twin.address("chat-8b-01"), "POST", "/v1/completions", plain)[1])
    assert answer["usage"] == {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}
    models = json.loads(twin.get("/v1/models", twin.address("chat-8b-01"))[1])
    assert [each["id"] for each in models["data"]] == ["llama-3.1-8b"]
    assert twin.get("/health", twin.address("chat-8b-01"))[0] == 200


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"max_tokens": 0}, "max_tokens: 0 is not a whole number in 1..1000000"),
        ({"max_tokens": True}, "max_tokens: True"),
        ({"prompt_tokens": "many"}, "prompt_tokens: 'many'"),
        ({"model": None}, "model: a name is required"),
        ({"prompt_tokens": 900_000}, "do not fit 420900"),
        ({"prompt_tokens": None}, "messages (or prompt, or prompt_tokens) is required"),
    ],
)
def test_a_bad_request_is_answered_in_words(twin: Twin, wrong: dict[str, Any], says: str) -> None:
    status, raw = twin.complete("chat-8b-01", 5, **wrong)
    assert status == 400
    assert says in json.loads(raw)["error"]["message"]


@pytest.mark.parametrize("raw", ["", "{", "[]", "[" * 100_000, '"text"', "\xff"])
def test_what_is_no_request_at_all_is_a_bad_one(twin: Twin, raw: str) -> None:
    connection = http.client.HTTPConnection(twin.address("chat-8b-01"), timeout=20)
    connection.request("POST", CHAT, raw.encode("latin-1"))
    with connection.getresponse() as answer:
        assert answer.status == 400
        assert json.loads(answer.read())["error"]["type"] == "BadRequestError"
    connection.close()


def test_another_model_is_not_found_as_by_the_real_engine(twin: Twin) -> None:
    status, raw = twin.complete("chat-8b-01", 5, model="gpt")
    problem = json.loads(raw)["error"]
    assert status == problem["code"] == 404
    assert problem["type"] == "NotFoundError"
    assert problem["message"] == "model: 'gpt' is not served here, 'llama-3.1-8b' is"


def test_a_caller_who_leaves_gives_the_seat_back_and_is_counted_as_abort_and_in_no_latency(
    twin: Twin,
) -> None:
    slot, ended = "chat-8b-02", "vllm:e2e_request_latency_seconds_count"
    aborts = twin.value(slot, "vllm:request_success_total", finished_reason="abort")
    answered = twin.value(slot, ended)
    with streaming(twin.address(slot), 5000):
        assert twin.value(slot, "vllm:num_requests_running") == 1
        assert twin.value(slot, "vllm:kv_cache_usage_perc") > 0
    eventually(lambda: twin.value(slot, "vllm:num_requests_running") == 0, 10)
    assert twin.value(slot, "vllm:request_success_total", finished_reason="abort") == aborts + 1
    assert twin.value(slot, "vllm:kv_cache_usage_perc") == 0
    assert twin.value(slot, ended) == answered


def test_a_caller_who_leaves_before_the_engine_has_the_request_leaves_nothing(twin: Twin) -> None:
    slot = "reason-70b-01"
    for _ in range(20):
        connection = http.client.HTTPConnection(twin.address(slot), timeout=20)
        connection.request("POST", CHAT, json.dumps(body(50_000, model="llama-3.1-70b")))
        connection.close()
    eventually(lambda: twin.value(slot, "vllm:num_requests_running") == 0, 10)
    assert twin.value(slot, "vllm:num_requests_waiting") == 0
    assert twin.value(slot, "vllm:kv_cache_usage_perc") == 0
    assert twin.complete(slot, 3, model="llama-3.1-70b")[0] == 200


def test_an_idle_engine_burns_processor_time_while_its_token_counters_stand_still(twin: Twin) -> None:
    cpu, tokens = (
        twin.value("batch-eval-01", n) for n in ("process_cpu_seconds_total", "vllm:generation_tokens_total")
    )
    eventually(lambda: twin.value("batch-eval-01", "process_cpu_seconds_total") > cpu, 10)
    assert twin.value("batch-eval-01", "vllm:generation_tokens_total") == tokens


def test_inventory_and_discovery_name_the_same_fleet_and_every_gpu_once(twin: Twin) -> None:
    inventory, engines = twin.json("/inventory"), twin.json("/sd/engines")
    assert {e["labels"]["instance_id"] for e in engines} == {i["instance_id"] for i in inventory["instances"]}
    assert len({e["targets"][0] for e in engines}) == len(engines) == 28
    assert sum(node["gpu_count"] for node in inventory["nodes"]) == 48
    held = [(each["node"], gpu) for each in inventory["instances"] if awake(each) for gpu in each["gpus"]]
    assert len(set(held)) == len(held)
    assert Counter(node for node, _ in held) == {"n1": 8, "n2": 4, "n3": 8, "n4": 8, "n5": 8, "n6": 4}
    owners = [node["pool"] for node in inventory["nodes"]]
    assert owners == ["chat-8b", "chat-8b", "reason-70b", "reason-70b", "vision", None]


def test_offline_work_runs_on_the_buffer_with_online_models_asleep_on_the_same_gpus(twin: Twin) -> None:
    on_buffer = [each for each in twin.json("/inventory")["instances"] if each["node"] == "n6"]
    told = {(each["pool"], each["phase"], each["lent_by"], each["managed"]) for each in on_buffer}
    assert told == {("batch-eval", "serving", "buffer", True), ("chat-8b", "asleep", None, True)}
    for pool in ("batch-eval", "chat-8b"):
        assert [each["gpus"] for each in on_buffer if each["pool"] == pool] == [[0], [1], [2], [3]]
    elsewhere = [each for each in twin.json("/inventory")["instances"] if each["node"] != "n6"]
    assert not any(each["managed"] or each["lent_by"] for each in elsewhere)


def awake(row: dict[str, Any]) -> bool:
    return row["phase"] not in {"asleep", "gone"}


def test_every_target_of_discovery_answers_and_has_its_labels(twin: Twin) -> None:
    engine = twin.json("/sd/engines")[0]
    assert set(engine["labels"]) == {"cluster", "pool", "instance_id", "node", "pod", "namespace"}
    assert engine["labels"]["pod"] == "chat-8b-01"
    for each in twin.json("/sd/engines"):
        assert twin.get("/health", each["targets"][0])[0] == 200
    gpus = twin.json("/sd/gpus")
    assert [each["labels"] for each in gpus] == [{"cluster": "demo", "node": f"n{n}"} for n in range(1, 7)]


def test_an_instance_that_is_drained_says_so_and_can_stay_after_all(twin: Twin) -> None:
    assert twin.instance("vision-01")["phase"] == "serving"
    assert ask(twin.control, "POST", "/drain/vision-01")[0] == 200
    assert twin.instance("vision-01")["phase"] == "draining"
    assert twin.complete("vision-01", 3, model="vision-12b")[0] == 200
    assert ask(twin.control, "DELETE", "/drain/vision-01")[0] == 200
    assert twin.instance("vision-01")["phase"] == "serving"
    assert ask(twin.control, "POST", "/drain/nobody")[0] == 404


RANGES = {
    "DCGM_FI_DEV_SM_CLOCK": (1980, 1980),
    "DCGM_FI_DEV_GPU_TEMP": (34, 62),
    "DCGM_FI_DEV_POWER_USAGE": (95, 620),
    "DCGM_FI_DEV_GPU_UTIL": (0, 100),
    "DCGM_FI_DEV_XID_ERRORS": (0, 0),
    "DCGM_FI_DEV_FB_FREE": (0, 81_559),
    "DCGM_FI_DEV_FB_USED": (0, 81_559),
    "DCGM_FI_PROF_SM_ACTIVE": (0, 1),
    "DCGM_FI_PROF_DRAM_ACTIVE": (0, 1),
}


def test_a_node_s_exporter_speaks_of_its_eight_cards_and_of_who_holds_them(twin: Twin) -> None:
    families = {family.name: family for family in twin.cards("n2")}
    assert set(families) == set(RANGES)
    for name, (low, high) in RANGES.items():
        assert all(low <= each.value <= high for each in families[name].samples), name
    samples = families["DCGM_FI_DEV_FB_USED"].samples
    used = {each.labels["gpu"]: (each.labels["pod"], each.value) for each in samples}
    assert [used[str(gpu)] for gpu in (0, 3, 4, 7)] == [
        ("chat-8b-09", round(0.9 * 81_559)),
        ("chat-8b-12", round(0.9 * 81_559)),
        ("", 0),
        ("", 0),
    ]


def test_a_card_is_busy_while_steps_run_and_idle_before_and_after(twin: Twin) -> None:
    def busy() -> float:
        return twin.card("n5", "DCGM_FI_DEV_GPU_UTIL", "2")

    slot, active = "vision-02", "DCGM_FI_PROF_SM_ACTIVE"
    assert twin.instance(slot)["node"] == "n5"
    eventually(lambda: busy() == 0, 10)
    assert twin.card("n5", active, "3") == 0
    with streaming(twin.address(slot), 100_000, model="vision-12b"):
        eventually(lambda: busy() > 90, 20)
        assert 0.18 < twin.card("n5", active, "3") <= 0.8
    eventually(lambda: busy() == 0, 10)


def test_a_port_in_use_is_said_in_one_line(twin: Twin, tmp_path: Path) -> None:
    log = tmp_path / "second.log"
    with running([*TWIN, "--port", twin.control.rpartition(":")[2]], log) as process:
        assert process.wait(20) == 1
    said = log.read_text("utf-8")
    assert said.startswith(f"Error: cannot listen on {twin.control}: ")
    assert len(said.splitlines()) == 1


def test_sigterm_ends_it_also_with_streams_open(tmp_path: Path) -> None:
    log = tmp_path / "twin.log"
    with twin_running(log) as (own, process), streaming(own.address("chat-8b-01"), 5000):
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert len(log.read_text("utf-8").splitlines()) == 1
