"""Listening sockets."""

from __future__ import annotations

import socket

import pytest

from cloudtrain._system.sockets import create_server

LOOPBACK_6 = "::1"


def _has_ipv6() -> bool:
    try:
        create_server(LOOPBACK_6, 0, 1).close()
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6")


@pytest.mark.parametrize(
    ("at", "reached"),
    [
        ("", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("localhost", "127.0.0.1"),
        pytest.param("", LOOPBACK_6, marks=needs_ipv6),
        pytest.param(LOOPBACK_6, LOOPBACK_6, marks=needs_ipv6),
    ],
)
def test_clients_of_ipv4_and_of_ipv6_reach_a_server(at: str, reached: str) -> None:
    with create_server(at, 0, 1) as server:
        socket.create_connection((reached, server.getsockname()[1]), timeout=60).close()


def test_a_port_in_use_is_an_error_though_only_one_family_uses_it() -> None:
    with socket.create_server(("", 0)) as other, pytest.raises(OSError, match="in use"):
        create_server("", other.getsockname()[1], 1)
