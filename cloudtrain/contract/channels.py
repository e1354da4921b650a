"""An input channel, for the host that provides it: its URI, and its entry in ``inputdataconfig.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from cloudtrain._dataclass import dataclass


@dataclass(frozen=True)
class ChannelInput:
    """The data of one channel, and how hosts share it."""

    name: str
    uri: str
    document: Mapping[str, Any] = field(default_factory=dict)
    """The entry, in SageMaker's form."""

    @property
    def mode(self) -> str:
        """``File``, ``FastFile`` or ``Pipe``."""
        return str(self.document.get("TrainingInputMode") or "File")

    @property
    def is_sharded(self) -> bool:
        """Whether each host gets a part of the objects instead of all."""
        return self.document.get("S3DistributionType") == "ShardedByS3Key"


def request_channels(body: Mapping[str, Any]) -> list[ChannelInput]:
    """The channels of a supervised platform's request that have a URI."""
    entries = body.get("channels") or {}
    return [ChannelInput(name, entry["uri"], entry) for name, entry in entries.items() if entry.get("uri")]
