"""From the answers of AWS to errors that say what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cloudtrain.errors import PlatformError


@contextmanager
def aws_errors(subject: str) -> Iterator[None]:
    """Raise what botocore raises inside as a `PlatformError` about ``subject``."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise PlatformError(f"{subject}: {error}") from error
