"""The configuration as text: what it always says, and what it never lets in."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.adapters.gateways.haproxy import files
from controlplane.adapters.gateways.haproxy.layout import (
    GatewayLayout,
    PoolLayout,
    ServerLayout,
    Timeouts,
    problems,
    server_name,
)
from controlplane.adapters.gateways.haproxy.render import render
from controlplane.domain.ids import InstanceId, PoolName
from controlplane.ports import InvalidConfig, Unavailable

ONE = ServerLayout("chat-8b-01", "127.0.0.1:9001", 8)
POOL = PoolLayout(PoolName("chat-8b"), ("llama-3.1-8b",), (ONE,))
LAYOUT = GatewayLayout("127.0.0.1:8080", "127.0.0.1:8405", Path("/run/trimtab/admin.sock"), (POOL,))


def with_pool(**changes: object) -> GatewayLayout:
    return replace(LAYOUT, pools=(replace(POOL, **changes),))  # type: ignore[arg-type]


def with_server(**changes: object) -> GatewayLayout:
    return with_pool(servers=(replace(ONE, **changes),))  # type: ignore[arg-type]


def section(config: str, head: str) -> list[str]:
    """The directives of one section."""
    lines = config.splitlines()
    start = lines.index(head) + 1
    end = next((n for n in range(start, len(lines)) if not lines[n].startswith(" ")), len(lines))
    return [line.strip() for line in lines[start:end]]


@pytest.mark.parametrize(
    "directive",
    [
        "option http-no-delay",  # else a lone token waits for about 200 ms
        "option abortonclose",  # in a backend alone it parses and does nothing
        "option redispatch",  # else a dead server is tried again and again
        "option http-keep-alive",
        "retries 1",
        "retry-on conn-failure 503",  # nothing that may run a prompt twice
        "balance leastconn",
        "timeout server 600000ms",
        "timeout client 600000ms",
    ],
)
def test_defaults_hold_what_every_pool_needs(directive: str) -> None:
    assert directive in section(render(LAYOUT).config, "defaults")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 413, 429, 500, 502, 503, 504])
def test_every_error_of_the_gateways_own_is_json(status: int) -> None:
    defaults = section(render(LAYOUT).config, "defaults")
    line = next(one for one in defaults if one.startswith(f"http-error status {status} "))
    assert "content-type application/json" in line
    assert json.loads(line.split("'")[1])["error"]["code"] == f"gateway_{status}"


def test_the_runtime_api_is_on_a_unix_socket_for_its_owner_alone() -> None:
    stats = [line for line in render(LAYOUT).config.splitlines() if "stats socket" in line]
    assert [line.strip() for line in stats] == ["stats socket '/run/trimtab/admin.sock' mode 600 level admin"]


def test_a_backend_stamps_the_first_token_and_bounds_its_queue_and_retries() -> None:
    backend = section(render(with_pool(queue_bound=9)).config, "backend chat-8b")
    assert "http-request set-var(txn.arrived) date(0,ms)" in backend
    assert "http-response wait-for-body time 600000ms at-least 1" in backend
    assert "http-response set-var(txn.ttft) date(0,ms),sub(txn.arrived)" in backend
    assert any(line.endswith("hdr retry-after 5 if { queue(chat-8b) ge 9 }") for line in backend)
    assert "http-request disable-l7-retry if { rand(100) ge 10 }" in backend
    assert "server chat-8b-01 127.0.0.1:9001 weight 100 maxconn 8" in backend


def test_the_queue_bound_is_one_more_full_load_where_none_is_given() -> None:
    servers = (ONE, replace(ONE, name="chat-8b-02", limit=5))
    assert replace(POOL, servers=servers).bound == 13
    assert replace(POOL, servers=()).bound == 1


def test_a_drained_server_is_rendered_out_of_traffic_and_keeps_its_weight() -> None:
    backend = section(render(with_server(drained=True, weight=40)).config, "backend chat-8b")
    assert "server chat-8b-01 127.0.0.1:9001 weight 40 maxconn 8 disabled" in backend


def test_no_limit_is_ever_rendered_as_zero() -> None:
    """`maxconn 0` is unlimited."""
    for limit in (0, -1):
        with pytest.raises(InvalidConfig, match="at least 1"):
            render(with_server(limit=limit))


HOSTILE = st.sampled_from(["\n", "\r", " ", "\t", "'", '"', "%[", "\\", "#", "$", "{", ";", "\x00", "é", ","])


@given(st.text("abc-09", max_size=5), HOSTILE, st.text("abc-09", max_size=5))
def test_no_name_can_carry_a_directive_into_the_file(before: str, hostile: str, after: str) -> None:
    name = before + hostile + after
    for layout in (
        with_pool(pool=PoolName(name)),
        with_pool(models=(name,)),
        with_server(name=name),
        with_server(address=f"{name}:80"),
        replace(LAYOUT, listen=f"{name}:80"),
        replace(LAYOUT, exporter=f"{name}:80"),
        replace(LAYOUT, log=f"{name}:80"),
        replace(LAYOUT, long_pool=PoolName(name)),
    ):
        with pytest.raises(InvalidConfig) as caught:
            render(layout)
        assert all("\n" not in problem for problem in caught.value.problems)


@pytest.mark.parametrize("path", ["/run/a'b.sock", "/run/a\nb.sock", "run/a.sock", "/run/" + "a" * 100])
def test_a_socket_path_that_cannot_be_bound_is_refused(path: str) -> None:
    assert problems(LAYOUT) == ()
    assert any("socket" in problem for problem in problems(replace(LAYOUT, socket=Path(path))))


@pytest.mark.parametrize("log", ["/dev/log", "unix@/run/log", "ring@r", ""])
def test_a_log_is_not_sent_where_it_would_be_lost(log: str) -> None:
    """A Unix datagram socket holds ten messages; beyond them lines vanish without a word."""
    assert problems(replace(LAYOUT, log="127.0.0.1:5140")) == ()
    assert any("log is" in problem for problem in problems(replace(LAYOUT, log=log)))


def test_all_problems_are_told_at_once_with_value_and_range() -> None:
    layout = replace(with_server(weight=300, limit=0), threads=0, timeouts=Timeouts(queue_s=float("nan")))
    with pytest.raises(InvalidConfig) as caught:
        render(layout)
    told = "\n".join(caught.value.problems)
    for part in ("weight is 300; allowed are 0 to 256", "limit is 0", "threads is 0", "queue_s is nan"):
        assert part in told


@pytest.mark.parametrize(
    ("layout", "what"),
    [
        (replace(LAYOUT, pools=()), "no pool"),
        (replace(LAYOUT, pools=(POOL, POOL)), "pool 'chat-8b' stands 2 times"),
        (with_pool(models=("a", "a")), "model 'a' stands 2 times"),
        (with_pool(servers=(ONE, ONE)), "server 'chat-8b-01' stands 2 times"),
        (replace(LAYOUT, long_pool=PoolName("other")), "none of the pools"),
        (with_pool(queue_bound=0), "queue_bound is 0"),
        (with_server(address="127.0.0.1:0"), "port from 1 to 65535"),
        (with_server(address="127.0.0.1:65536"), "port from 1 to 65535"),
    ],
)
def test_what_contradicts_itself_is_refused(layout: GatewayLayout, what: str) -> None:
    with pytest.raises(InvalidConfig, match=what):
        render(layout)


def test_two_pools_may_not_serve_one_model() -> None:
    """The map's first entry would win, and the other pool's traffic vanish."""
    other = replace(POOL, pool=PoolName("other"), servers=())
    with pytest.raises(InvalidConfig, match=r"model 'llama-3\.1-8b' stands 2 times"):
        render(replace(LAYOUT, pools=(POOL, other)))


@pytest.mark.parametrize(
    ("instance", "server"),
    [
        ("demo/chat-8b-03@s9k2x1", "chat-8b-03"),
        ("demo/ns/5f0c-uid", "5f0c-uid"),
        ("demo/a b:c@1", "a_b_c"),
        ("demo/plain", "plain"),
    ],
)
def test_a_server_is_named_for_its_slot(instance: str, server: str) -> None:
    assert server_name(InstanceId(instance)) == server


LAYOUTS = {
    "one pool": LAYOUT,
    "no servers yet": with_pool(servers=()),
    "host names, IPv6, everything set": replace(
        with_pool(
            models=("a/b", "m:1@x+y"),
            servers=(
                replace(ONE, address="localhost:1", weight=0),
                ServerLayout("b", "[::1]:2", 1, 256, drained=True),
            ),
        ),
        log="127.0.0.1:5140",
        long_pool=PoolName("chat-8b"),
        threads=1,
        buffer_bytes=262_144,
        retry_budget_percent=0,
        max_connections=100,
    ),
    "a large fleet": replace(
        LAYOUT,
        pools=tuple(
            PoolLayout(
                PoolName(f"pool-{p}"),
                (f"model-{p}",),
                tuple(ServerLayout(f"s{n}", f"10.0.{p}.{n}:80", 8) for n in range(1, 51)),
            )
            for p in range(20)
        ),
    ),
}


@pytest.mark.real
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_haproxy_itself_accepts_the_files_without_a_warning(layout: GatewayLayout, tmp_path: Path) -> None:
    if shutil.which("haproxy") is None:
        pytest.skip("haproxy is not on PATH")
    config = files.write(render(layout), tmp_path)
    # A large fleet's check wants as many descriptors as its run would.
    done = subprocess.run(["haproxy", "-c", "-f", config], capture_output=True, text=True, check=False)
    assert (done.returncode, "WARNING" in done.stderr + done.stdout) == (0, False), done.stderr


def test_files_are_replaced_whole_and_the_old_ones_stay_when_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = files.write(render(LAYOUT), tmp_path)
    before = config.read_text()
    assert "chat-8b-01" in before

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(Unavailable, match="No space left"):
        files.write(render(with_server(weight=7)), tmp_path)
    monkeypatch.undo()
    assert config.read_text() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["haproxy.cfg", "models.json", "models.map"]
    files.write(render(with_server(weight=7)), tmp_path)
    assert "weight 7" in config.read_text()
