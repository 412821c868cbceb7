"""Ports that are still free when their servers start."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from controlplane.demo import stage
from controlplane.demo.processes import DemoError
from controlplane.demo.stage import PORTS, free_ports

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_ports_are_free_and_different() -> None:
    found = free_ports(20)
    assert len(set(found)) == 20
    for port in found:
        with socket.create_server(("127.0.0.1", port)):
            assert port in PORTS


def test_a_port_in_use_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    (taken,) = free_ports(1)
    monkeypatch.setattr(stage, "PORTS", range(taken, taken + 1))
    assert free_ports(1) == [taken]
    with socket.create_server(("127.0.0.1", taken)), pytest.raises(DemoError, match="fewer than 1 ports"):
        free_ports(1)


@pytest.mark.skipif(not RANGE.exists(), reason="this system does not say its range")
def test_no_connection_takes_its_near_end_from_there() -> None:
    lowest = int(RANGE.read_text().split()[0])
    if lowest < 32_768:
        pytest.skip(f"this machine's range begins at {lowest}")
    assert PORTS[-1] < lowest
