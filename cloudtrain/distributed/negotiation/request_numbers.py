"""Numbers for requests that repeat, so that a step sends a few bytes for each operation instead of its description.

This is the response cache of Horovod. Requests with the same bytes have the same number. The coordinator assigns it to
a request without data that was agreed on before, and announces it with the response. All ranks of the process set get
that response, and a rank has one operation of a name at a time, so every rank knows the numbers that it receives.
"""

from __future__ import annotations

from collections.abc import Sequence

from cloudtrain.distributed.negotiation.messages import (
    ADD_SET,
    REMOVE_SET,
    CollectiveRequest,
    CollectiveResponse,
    pack_numbers,
    pack_request,
)

MOST_NUMBERS = 1 << 14
"""Requests after these are sent in full."""


class AssignedNumbers:
    """The coordinator's side."""

    def __init__(self) -> None:
        self._requests: list[CollectiveRequest] = []
        """By number."""
        self._numbers: dict[bytes, int] = {}
        self._seen: set[bytes] = set()
        """Requests without a number: names such as ``loss at step 7`` occur once, and need none."""

    def request(self, number: int) -> CollectiveRequest:
        """Raises ValueError if there is no such number."""
        if number >= len(self._requests):
            raise ValueError(f"there is no request {number}")
        return self._requests[number]

    def of(self, request: CollectiveRequest) -> tuple[int | None, bool]:
        """The number of a request that all ranks have sent without data, and whether they know it already."""
        if not request.named or request.kind in (ADD_SET, REMOVE_SET):
            return None, False
        packed = pack_request(request)
        number = self._numbers.get(packed)
        if number is not None:
            return number, True
        if packed not in self._seen:
            if len(self._seen) >= MOST_NUMBERS:
                self._seen.clear()
            self._seen.add(packed)
            return None, False
        if len(self._requests) >= MOST_NUMBERS:
            return None, False
        self._seen.remove(packed)
        self._numbers[packed] = len(self._requests)
        self._requests.append(request)
        return self._numbers[packed], False


class KnownNumbers:
    """The side of the other ranks."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._responses: dict[int, CollectiveResponse] = {}
        self._unanswered: dict[tuple[int, str], bytes] = {}

    def pack(self, request: CollectiveRequest) -> bytes:
        """The message to send for ``request``."""
        packed = pack_request(request)
        number = self._numbers.get(packed)
        if number is not None:
            return pack_numbers([number])
        self._unanswered[request.set_id, request.key] = packed
        return packed

    def learn(self, response: CollectiveResponse) -> None:
        """Remember the number of the request that ``response`` answers, if it has one."""
        if response.number is not None:
            self._responses[response.number] = CollectiveResponse(response.set_id, response.key)
        self._answer(response, response.number)

    def responses(self, numbers: Sequence[int]) -> list[CollectiveResponse]:
        """The responses that ``numbers`` replace. Raises ValueError if one is unknown."""
        unknown = [number for number in numbers if number not in self._responses]
        if unknown:
            raise ValueError(f"there are no requests {unknown}")
        found = [self._responses[number] for number in numbers]
        for number, response in zip(numbers, found):  # this rank may have joined when the number was assigned
            self._answer(response, number)
        return found

    def _answer(self, response: CollectiveResponse, number: int | None) -> None:
        """``response`` answers the request of its key, which may have a ``number``."""
        packed = self._unanswered.pop((response.set_id, response.key), None)
        if packed is not None and number is not None and response.request is None:
            self._numbers[packed] = number
