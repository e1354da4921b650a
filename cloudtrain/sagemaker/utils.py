"""As `sagemaker.utils` of the SDK: functions that generate names, and the buckets of sample data."""

from __future__ import annotations

import json
import re
import secrets
import time
from datetime import datetime, timezone

from cloudtrain.sagemaker._elsewhere import others

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.session import Session

MOST = 63
"""The greatest length of a SageMaker job's name."""


def name_from_base(base: str, max_length: int = MOST, short: bool = False) -> str:
    """``base``, cut if necessary, and the time.

    Args:
        short: leave out the century, the seconds and their fraction.
    """
    end = sagemaker_short_timestamp() if short else sagemaker_timestamp()
    return f"{base[: max_length - len(end) - 1]}-{end}"


def unique_name_from_base(base: str, max_length: int = MOST) -> str:
    """``base``, cut if necessary, the time in seconds, and four random hexadecimal digits."""
    end = f"{int(time.time())}-{secrets.token_hex(2)}"
    return f"{base[: max_length - len(end) - 1]}-{end}"


def base_name_from_image(image: str, default_base_name: str | None = None) -> str:
    """The name of the repository in the URI of an image."""
    match = re.match("^(.+/)?([^:/]+)(:[^:]+)?$", image)
    return match[2] if match else default_base_name or image


def sagemaker_timestamp() -> str:
    """The time in UTC with milliseconds: ``2026-11-22-20-30-00-123``."""
    now = datetime.now(timezone.utc)
    return f"{now:%Y-%m-%d-%H-%M-%S}-{now.microsecond // 1000:03d}"


def sagemaker_short_timestamp() -> str:
    """The local time to the minute: ``261122-2030``."""
    return time.strftime("%y%m%d-%H%M")


class S3DataConfig:
    """The JSON object in S3 with the bucket of sample data for each region."""

    def __init__(self, sagemaker_session: Session, bucket_name: str, prefix: str) -> None:
        self.sagemaker_session, self.bucket_name, self.prefix = sagemaker_session, bucket_name, prefix

    def fetch_data_config(self) -> dict[str, str]:
        """The content of the object. Raises NotFound."""
        text = self.sagemaker_session.read_s3_file(self.bucket_name, self.prefix)
        found: dict[str, str] = json.loads(text)
        return found

    def get_data_bucket(self, region_requested: str | None = None) -> str:
        """The bucket for a region, by default that of the session. Raises NotFound."""
        config = self.fetch_data_config()
        region = region_requested or self.sagemaker_session.boto_region_name
        return config[region] if region in config else config["default"]


__getattr__ = others(__name__)

__all__ = [
    "S3DataConfig",
    "base_name_from_image",
    "name_from_base",
    "sagemaker_short_timestamp",
    "sagemaker_timestamp",
    "unique_name_from_base",
]
