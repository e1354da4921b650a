"""The signals between two ranks that share memory."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, TimeoutError as FutureTimeout

import pytest

from cloudtrain.distributed.torch import _shared_memory
from cloudtrain.distributed.torch._shared_memory import SIGNAL_BYTES, _Peer

Pair = tuple[_Peer, _Peer]
SPIN = 0.0001


@pytest.fixture
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    memory = memoryview(bytearray(4 * SIGNAL_BYTES)).cast("Q")
    one, other = socket.socketpair()
    with one, other:
        for end in (one, other):
            end.settimeout(60)
        spin = getattr(request, "param", 0.0)
        yield _Peer(one, memory, 1, True, spin), _Peer(other, memory, 1, False, spin)


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("pair", [0.0, SPIN], indirect=True)
def test_no_signal_is_lost(pair: Pair, in_order: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_shared_memory, "SHOWS_STORES_IN_ORDER", in_order)
    turns = {True: 0, False: 0}

    def take_turns(first: bool) -> None:
        own = pair[not first]
        for turn in range(2000):
            if first:
                own.signal()
            own.wait()
            turns[first] = turn
            assert turns[not first] >= turn - 1, "a wait ended before the signal"
            if not first:
                own.signal()

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(take_turns, (True, False)))


@pytest.mark.parametrize("pair", [0.0, 30.0], indirect=True)
def test_the_end_of_a_rank_ends_the_wait_for_it(pair: Pair) -> None:
    pair[0].signal()
    pair[0].connection.shutdown(socket.SHUT_RDWR)
    pair[1].wait()
    with pytest.raises(ConnectionError):
        pair[1].wait()


def test_a_rank_whose_wakeups_are_not_read_sends_on(pair: Pair) -> None:
    signals = 5000
    pair[1]._memory[pair[1]._own + 1] = 1  # it is about to sleep, and always finds that it need not
    for _ in range(signals):
        pair[0].signal()
    for _ in range(signals):
        pair[1].wait()
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(pair[1].wait)
        with pytest.raises(FutureTimeout):
            waiting.result(0.2)
        pair[0].signal()
        waiting.result(60)
