"""The handshake and sealed messages over real sockets, attacked."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloudtrain.link import handshake, secret
from cloudtrain.link.handshake import (
    CHALLENGE_BYTES,
    HELLO_BYTES,
    PROOF_BYTES,
    Examination,
    Keys,
    NotAuthenticated,
)
from cloudtrain.link.sealing import BrokenSeal, Opener, Sealer

SECRET = "5e" * 32
KEY = secret.derive(SECRET, "control")


def examine(connection: socket.socket, key: bytes = KEY) -> Keys:
    """The server's part, as a selector loop plays it."""
    connection.setblocking(False)
    examination = Examination(connection, {"control": key})
    deadline = time.monotonic() + 60
    while examination.keys is None:
        examination.advance()
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return examination.keys


def prove(connection: socket.socket, key: bytes = KEY) -> Keys:
    return handshake.prove(connection, key, "control", time.monotonic() + 60)


def run(client: Callable[[socket.socket], object], server: Callable[[socket.socket], object]) -> list[object]:
    """Both sides' results: a value or the exception."""

    def side(play: Callable[[socket.socket], object], end: socket.socket) -> object:
        with end:
            try:
                return play(end)
            except (NotAuthenticated, OSError) as error:
                return error

    with ThreadPoolExecutor(2) as pool:
        return [
            future.result(60)
            for future in [
                pool.submit(side, play, end)
                for play, end in zip((client, server), socket.socketpair(), strict=True)
            ]
        ]


def test_both_sides_agree_on_keys_for_each_direction() -> None:
    client, server = run(prove, examine)
    assert isinstance(client, Keys)
    assert isinstance(server, Keys)
    assert (client.send, client.receive) == (server.receive, server.send)
    assert client.send != client.receive
    assert SECRET not in repr((client, server)) and client.send.hex() not in repr(client)


def test_a_client_with_a_wrong_secret_is_refused_with_the_reason() -> None:
    other = secret.derive("another", "control")
    client, server = run(lambda end: prove(end, other), examine)
    assert isinstance(client, NotAuthenticated)
    assert isinstance(server, OSError)


def test_a_client_does_not_prove_itself_to_a_server_without_the_key() -> None:
    received = b""

    def impostor(end: socket.socket) -> None:
        nonlocal received
        end.recv(HELLO_BYTES)
        end.sendall(os.urandom(CHALLENGE_BYTES))
        received = end.recv(1024)

    client, _ = run(prove, impostor)
    assert isinstance(client, NotAuthenticated)
    assert received == b""


def test_a_proof_that_is_reflected_proves_nothing() -> None:
    """A client without a key sends the server's own proof back."""

    def mirror(end: socket.socket) -> None:
        end.sendall(handshake.MAGIC + b"control\0" + os.urandom(32))
        end.sendall(end.recv(CHALLENGE_BYTES)[-PROOF_BYTES:])
        assert end.recv(1) == b""

    assert isinstance(run(mirror, examine)[1], NotAuthenticated)


def test_a_client_that_is_sent_its_own_hello_is_not_deceived() -> None:
    def mirror(end: socket.socket) -> None:
        hello = end.recv(HELLO_BYTES)
        end.sendall(hello + hello[-16:])

    assert isinstance(run(prove, mirror)[0], NotAuthenticated)


def test_a_recorded_handshake_cannot_be_replayed() -> None:
    recorded: list[bytes] = []

    def relay(end: socket.socket) -> None:
        """Records what the client sends on its way to the server."""
        inner, outer = socket.socketpair()
        with inner, outer, ThreadPoolExecutor(1) as pool:
            served = pool.submit(examine, inner)
            recorded.append(end.recv(HELLO_BYTES))
            outer.sendall(recorded[0])
            end.sendall(outer.recv(CHALLENGE_BYTES))
            recorded.append(end.recv(PROOF_BYTES))
            outer.sendall(recorded[1])
            served.result(60)

    def replay(end: socket.socket) -> None:
        end.sendall(b"".join(recorded))
        while end.recv(1024):
            pass

    assert isinstance(run(prove, relay)[0], Keys)
    assert isinstance(run(replay, examine)[1], NotAuthenticated)


def test_keys_of_different_purposes_differ() -> None:
    spawn = secret.derive(SECRET, "spawn")
    assert isinstance(run(lambda end: prove(end, spawn), examine)[0], NotAuthenticated)
    client, server = run(lambda end: handshake.prove(end, spawn, "spawn", time.monotonic() + 60), examine)
    assert isinstance(client, OSError)
    assert isinstance(server, NotAuthenticated)


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\n", b"\0" * 100, b'{"type": "join"}\n'])
def test_another_protocol_is_refused_immediately(start: bytes) -> None:
    assert isinstance(
        run(lambda end: (end.sendall(start), end.recv(1)), examine)[1], (NotAuthenticated, OSError)
    )


def test_the_client_waits_no_longer_than_its_deadline() -> None:
    ours, _theirs = socket.socketpair()
    began = time.monotonic()
    with ours, _theirs, pytest.raises(OSError, match="timed out"):
        handshake.prove(ours, KEY, "control", began + 0.2)
    assert time.monotonic() - began < 60


def test_messages_arrive_in_order_in_parts_of_any_size() -> None:
    messages = [random.randbytes(size) for size in (0, 1, 100, 70_000)]
    sealer, opener = Sealer(KEY), Opener(KEY)
    stream = b"".join(map(sealer.seal, messages))
    received = [
        message
        for start in range(0, len(stream), 999)
        for message in opener.feed(stream[start : start + 999])
    ]
    assert received == messages


@pytest.mark.parametrize("attack", ["change", "repeat", "reorder", "drop", "foreign", "reflect", "too long"])
def test_a_stream_that_someone_touched_is_not_read(attack: str) -> None:
    sealer = Sealer(KEY)
    first, second = sealer.seal(b"first"), sealer.seal(b"second")
    stream = {
        "change": first[:-1] + b"T",
        "repeat": first + first,
        "reorder": second + first,
        "drop": second,
        "foreign": Sealer(b"another key").seal(b"first"),
        "reflect": Sealer(secret.derive(SECRET, "spawn")).seal(b"first"),
        "too long": (2000).to_bytes(4, "big"),
    }[attack]
    with pytest.raises(BrokenSeal):
        list(Opener(KEY, limit=1000).feed(stream))


def test_keys_differ_by_secret_purpose_and_attempt() -> None:
    keys = {
        secret.derive(each, purpose, attempt)
        for each in (SECRET, secret.fresh_secret())
        for purpose in secret.PURPOSES
        for attempt in (0, 1)
    }
    assert len(keys) == 4 * len(secret.PURPOSES)
    with pytest.raises(ValueError, match="no key for 'root'"):
        secret.derive(SECRET, "root")


def test_ranks_find_their_secret_in_the_run_folder_or_the_environment(tmp_path: Path) -> None:
    assert secret.ranks_secret({"CLOUDTRAIN_RUN_DIR": str(tmp_path)}) == ""
    (tmp_path / secret.RANKS_FILE).write_text("abc")
    assert secret.ranks_secret({"CLOUDTRAIN_RUN_DIR": str(tmp_path)}) == "abc"
    assert secret.ranks_secret({"CLOUDTRAIN_RUN_DIR": str(tmp_path), secret.RANKS_VARIABLE: "x"}) == "x"
