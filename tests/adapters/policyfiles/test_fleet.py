"""fleet.yaml: typed, closed, and never a place for a secret."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from controlplane.adapters.policyfiles.fleetfile import load_fleet
from controlplane.ports import InvalidConfig
from controlplane.settings import FleetSettings, GatewayKind, OrchestratorKind, SecretRef
from tests.adapters.policyfiles.files import changed, write

FLEET: dict[str, object] = {
    "cluster": "demo",
    "prometheus": {"url": "http://127.0.0.1:9090"},
    "gateways": [{"name": "door", "kind": "haproxy", "socket": "run/admin.sock"}],
}


def load(tmp_path: Path, **changes: object) -> FleetSettings:
    content = changed(FLEET, {key.replace("__", "."): value for key, value in changes.items()})
    return load_fleet(write(tmp_path, "fleet.yaml", content))


def refusals(tmp_path: Path, **changes: object) -> tuple[str, ...]:
    with pytest.raises(InvalidConfig) as caught:
        load(tmp_path, **changes)
    return caught.value.problems


def test_the_least_that_must_be_said_is_enough(tmp_path: Path) -> None:
    fleet = load(tmp_path)
    assert fleet.cluster == "demo"
    assert fleet.orchestrator.kind is OrchestratorKind.NONE
    assert fleet.gateways[0].kind is GatewayKind.HAPROXY
    assert fleet.listen.host == "127.0.0.1"  # not to everybody, unless it is asked for


def test_relative_paths_count_from_the_file(tmp_path: Path) -> None:
    fleet = load(tmp_path, prometheus__token_file="token", database__url="sqlite:///var/t.db")
    assert fleet.gateways[0].socket == tmp_path / "run/admin.sock"
    assert fleet.prometheus.bearer == SecretRef(file=tmp_path / "token")
    assert fleet.database.url == f"sqlite:///{tmp_path}/var/t.db"


def test_absolute_and_in_memory_databases_stay_as_written(tmp_path: Path) -> None:
    for url in (
        "sqlite:////var/lib/t.db",
        "sqlite:///:memory:",
        "sqlite://",
        "postgresql+psycopg://me@db/t?host=/run/pg",
    ):
        assert load(tmp_path, database__url=url).database.url == url


def test_times_carry_units_and_become_seconds(tmp_path: Path) -> None:
    fleet = load(tmp_path, cadence={"weights": "500ms", "capacity": "1m"}, prometheus__timeout="90ms")
    assert (fleet.cadence.weights_s, fleet.cadence.capacity_s, fleet.prometheus.timeout_s) == (
        0.5,
        60.0,
        0.09,
    )


@pytest.mark.parametrize(
    "url",
    [
        "http://ops:hunter2@prom:9090",
        "https://hunter2@prom",
        "http://ops:hunt/er2@prom:9090",
        "http://ops:h@hunter2@prom",
        "ops:hunter2@prom:9090",
        "http://prom:9090/?token=hunter2",
        "http://prom:9090/#hunter2",
    ],
)
@pytest.mark.parametrize("key", ["prometheus__url", "orchestrator__url"])
def test_a_secret_in_a_url_is_refused_and_never_shown(tmp_path: Path, key: str, url: str) -> None:
    """B-189: user and password in a URL end up in logs and labels, so they never get in."""
    said = "\n".join(refusals(tmp_path, **{key: url}))
    assert key.replace("__", ".") in said
    assert "hunter2" not in said
    assert "er2@" not in said
    if "@" in url:
        assert "token_file" in said
        assert "basic_auth_env" in said


@pytest.mark.parametrize(
    "url",
    ["postgresql://me:hunter2@db/t", "postgresql+psycopg://me@db/t?password=hunter2", "mysql://hunter2@db/t"],
)
def test_a_password_in_the_database_url_is_refused_and_never_shown(tmp_path: Path, url: str) -> None:
    said = "\n".join(refusals(tmp_path, database__url=url))
    assert "fleet.yaml:" in said
    assert "hunter2" not in said


@pytest.mark.parametrize("key", ["token", "password", "bearer_token", "basic_auth", "headers"])
def test_there_is_no_key_to_write_a_secret_under(tmp_path: Path, key: str) -> None:
    said = "\n".join(refusals(tmp_path, **{f"prometheus__{key}": "hunter2"}))
    assert f"prometheus.{key}: unknown key" in said
    assert "hunter2" not in said


def test_a_token_written_where_its_variable_is_named_is_never_shown(tmp_path: Path) -> None:
    said = "\n".join(refusals(tmp_path, prometheus__token_env="hunter2-abc"))
    assert "allowed: the name of an environment variable" in said
    assert "hunter2" not in said


def test_a_secret_is_read_anew_and_stripped(tmp_path: Path) -> None:
    """B-058: a final newline would make an invalid header; a rotated file is seen."""
    token = tmp_path / "token"
    token.write_text("abc123\n")
    secret = load(tmp_path, prometheus__token_file="token").prometheus.bearer
    assert secret is not None
    assert secret.read() == "abc123"
    token.write_text("def456\n\n")
    assert secret.read() == "def456"
    assert "def456" not in repr(secret)


def test_the_webhooks_token_is_named_by_one_place_and_without_it_there_is_no_webhook(tmp_path: Path) -> None:
    assert load(tmp_path).webhook is None
    webhook = load(tmp_path, webhook={"token_file": "alerts-token"}).webhook
    assert webhook is not None
    assert webhook.token == SecretRef(file=tmp_path / "alerts-token")
    webhook = load(tmp_path, webhook={"token_env": "ALERTS_TOKEN"}).webhook
    assert webhook is not None
    assert webhook.token == SecretRef(env="ALERTS_TOKEN")
    for wrong in ({}, {"token_file": "a", "token_env": "B"}):
        (said,) = refusals(tmp_path, webhook=wrong)
        assert said.endswith("webhook: allowed: exactly one of token_file and token_env")
    (said,) = refusals(tmp_path, webhook={"token": "hunter2"})
    assert "webhook.token: unknown key" in said
    assert "hunter2" not in said


def test_a_secret_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = load(tmp_path, prometheus__basic_auth_env="PROM_AUTH").prometheus.basic
    assert secret is not None
    monkeypatch.delenv("PROM_AUTH", raising=False)
    with pytest.raises(InvalidConfig, match="PROM_AUTH: the secret is empty or not set"):
        secret.read()
    monkeypatch.setenv("PROM_AUTH", "ops:x \n")
    assert secret.read() == "ops:x"


def test_a_secret_file_that_is_a_pipe_a_device_or_a_folder_is_refused_and_not_waited_for(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", Path(os.devnull), tmp_path):
        with pytest.raises(InvalidConfig, match=f"{place}: the secret file cannot be read .is no plain file"):
            SecretRef(file=place).read()


def test_a_secret_file_that_cannot_be_used_names_the_file_only(tmp_path: Path) -> None:
    for content in (b"", b" \n", b"\xff\xfe"):
        (tmp_path / "token").write_bytes(content)
        with pytest.raises(InvalidConfig, match="token"):
            SecretRef(file=tmp_path / "token").read()
    with pytest.raises(InvalidConfig, match="No such file"):
        SecretRef(file=tmp_path / "absent").read()


def test_contradictions_come_all_at_once(tmp_path: Path) -> None:
    door = {"name": "door", "kind": "haproxy", "socket": "a.sock"}
    said = refusals(
        tmp_path,
        prometheus={"url": "http://p", "timeout": "9s", "token_file": "t", "basic_auth_env": "B"},
        gateways=[door, door],
        orchestrator={"kind": "twin"},
        cadence={"weights": "30s"},
    )
    assert [each.split(": ")[1] for each in said] == [
        "prometheus.timeout",
        "prometheus.basic_auth_env",
        "gateways.1.name",
        "gateways.1.socket",
        "orchestrator.url",
        "cadence.capacity",
    ]


@pytest.mark.parametrize("kind", ["none", "gauge"])
def test_an_orchestrator_that_nobody_is_asked_at_has_no_url(tmp_path: Path, kind: str) -> None:
    assert load(tmp_path, orchestrator={"kind": kind}).orchestrator.kind == kind
    (said,) = refusals(tmp_path, orchestrator={"kind": kind, "url": "http://127.0.0.1:1"})
    assert f": orchestrator.url: is for kind twin; kind {kind} asks nobody there" in said


def test_a_socket_path_too_long_for_the_kernel_is_refused_here(tmp_path: Path) -> None:
    found = refusals(tmp_path, gateways=[{"name": "door", "kind": "haproxy", "socket": "/" + "s" * 107}])
    assert "gateways.0.socket: allowed: at most 107 bytes" in found[0]
    assert load(tmp_path, gateways=[{"name": "door", "kind": "haproxy", "socket": "/" + "s" * 106}])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cluster", "Demo!"),
        ("listen__port", 65536),
        ("listen__port", "9750"),
        ("listen__host", "a b"),
        ("cadence__weights", 5),
        ("gateways", [{"name": "door", "kind": "nginx", "socket": "a"}]),
        ("gateways", {"name": "door"}),
        ("prometheus__url", "ftp://prom"),
        ("prometheus__url", "prom:9090"),
        ("prometheus__url", "http://prom:99999"),
        ("prometheus__url", "http://prom\n:9090"),
    ],
)
def test_a_wrong_value_names_its_line_and_what_is_allowed(tmp_path: Path, key: str, value: object) -> None:
    said = refusals(tmp_path, **{key: value})
    assert all("fleet.yaml:" in each and "allowed: " in each for each in said)


def test_the_example_of_the_documentation_is_valid() -> None:
    example = Path(__file__).resolve().parents[3] / "deploy/fleet.example.yaml"
    assert load_fleet(example).cluster == "demo"
