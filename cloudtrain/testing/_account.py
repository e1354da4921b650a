"""The account of an embedded S3 server."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

REGION = "us-east-1"


@dataclass(frozen=True)
class S3Account:
    """The endpoint of the server, and its keys."""

    endpoint: str
    access_key: str
    secret_key: str = field(repr=False)

    @classmethod
    def generate(cls, endpoint: str = "") -> S3Account:
        """An account with new random keys."""
        return cls(endpoint, "CT" + secrets.token_hex(9).upper(), secrets.token_urlsafe(30))

    @property
    def env(self) -> dict[str, str]:
        """The AWS environment variables that select this server."""
        return {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
        }

    def answers(self) -> bool:
        """Whether a server responds at the endpoint and accepts these keys. Another program on its port does not."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            self._client.list_buckets()
        except (BotoCoreError, ClientError):
            return False
        return True

    def create_bucket(self, name: str) -> None:
        """Create the bucket if it does not exist. Raises the errors of `cloudtrain.storage`."""
        from botocore.exceptions import ClientError

        from cloudtrain.storage.errors import s3_errors

        with s3_errors(f"s3://{name}"):
            try:
                self._client.create_bucket(Bucket=name)
            except ClientError as error:
                if error.response["Error"]["Code"] not in ("BucketAlreadyExists", "BucketAlreadyOwnedByYou"):
                    raise

    @cached_property
    def _client(self) -> Any:
        import boto3
        from botocore.config import Config

        return boto3.Session().client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=REGION,
            # Never use a proxy for the loopback interface.
            config=Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 1}, proxies={}),
        )
