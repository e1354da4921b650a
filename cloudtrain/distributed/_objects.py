"""Objects sent between ranks: pickled, with a tag that only a rank of the job can compute.

A pickle can run code when it is read, so no byte is unpickled before its tag has been checked. A packed object is
the length of its pickle (8 bytes), the tag (32 bytes), and the pickle. The tag is a keyed BLAKE2b, which is the
quickest to set up, or for large objects an HMAC-SHA256, for which processors have instructions.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import os
import pickle
from typing import Any

from cloudtrain.distributed.errors import CollectiveError

LENGTH_BYTES = 8
TAG_BYTES = 32
LARGE_BYTES = 64 << 10
HEAD_BYTES = LENGTH_BYTES + TAG_BYTES


def purpose_of(call: str, name: str | None, rank: int) -> str:
    """The purpose of the object that ``rank`` sends in a call, as errors show it."""
    return f"{call} of {name} from rank {rank}" if name else f"{call} from rank {rank}"


class Objects:
    """Packs and unpacks the objects of one job.

    Args:
        key: the same on all ranks. By default, a key of this process alone.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = os.urandom(32) if key is None else key

    def pack(self, obj: Any, purpose: str) -> memoryview:
        """``obj``, packed in writable memory.

        Args:
            purpose: see `purpose_of`. `unpack` accepts it for the same purpose only.
        """
        buffer = io.BytesIO()
        buffer.write(bytes(HEAD_BYTES))
        pickle.dump(obj, buffer)
        view = buffer.getbuffer()
        view[:LENGTH_BYTES] = (len(view) - HEAD_BYTES).to_bytes(LENGTH_BYTES, "big")
        view[LENGTH_BYTES:HEAD_BYTES] = self._tag(view[HEAD_BYTES:], purpose)
        return view

    def unpack(self, data: Any, purpose: str) -> Any:
        """The object in ``data``. Raises CollectiveError if no rank of this job packed it for ``purpose``."""
        [obj] = self.unpack_all(data, [purpose])
        return obj

    def unpack_all(self, data: Any, purposes: list[str]) -> list[Any]:
        """The objects in ``data``, one for each purpose. Raises CollectiveError, before any is unpickled."""
        view = memoryview(data)
        pickles = []
        for purpose in purposes:
            end = HEAD_BYTES + int.from_bytes(view[:LENGTH_BYTES], "big")
            content = view[HEAD_BYTES:end]
            tag = bytes(view[LENGTH_BYTES:HEAD_BYTES])
            if len(view) < end or not hmac.compare_digest(tag, self._tag(content, purpose)):
                raise _forged(purpose)
            pickles.append(content)
            view = view[end:]
        if len(view):
            raise _forged(purposes[-1])
        return [pickle.loads(content) for content in pickles]

    def _tag(self, content: memoryview, purpose: str) -> bytes:
        name = purpose.encode("utf-8", "surrogatepass")
        head = len(name).to_bytes(LENGTH_BYTES, "big") + name
        tag: Any
        if len(content) < LARGE_BYTES:
            tag = hashlib.blake2b(head, key=self._key, digest_size=TAG_BYTES)
        else:
            tag = hmac.new(self._key, head, hashlib.sha256)
        tag.update(content)
        return bytes(tag.digest())


def _forged(purpose: str) -> CollectiveError:
    return CollectiveError(
        f"{purpose}: refused, because no rank of this job sent it as it arrived",
        hint="Check who can reach the ports of this job: something changed the object, or sent its own.",
    )
