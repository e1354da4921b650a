"""Access to an AWS account and region, through boto3's session."""

from __future__ import annotations

import gzip
import re
import threading
from contextlib import suppress
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from botocore.loaders import JSONFileLoader, Loader, create_loader

from cloudtrain._version import __version__
from cloudtrain.aws.errors import aws_errors
from cloudtrain.errors import PlatformError

if TYPE_CHECKING:
    import boto3

    from cloudtrain.spec import TrainingJob


CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 60.0
ATTEMPTS = 8


class AccountMemory(Protocol):
    """Stores the account of each access key, which never changes at an endpoint."""

    def find(self, access_key: str, endpoint: str) -> str | None: ...

    def add(self, access_key: str, endpoint: str, account: str) -> None: ...


_DEFAULT_BUCKET = re.compile(r"s3://sagemaker-[a-z0-9-]+-(?P<account>\d{12})(?:/|$)")


class Aws:
    """An account and region, and its clients, which are created on first use. Makes no request before it is needed.

    Args:
        session: a ``boto3.Session``, or anything that has one as ``boto_session``, as the SageMaker SDK's Session
            does. Defaults to boto3's default session: the environment, the profile, SSO, the role of the machine.
        bucket: the default bucket; defaults to ``sagemaker-<region>-<account>``.
        memory: where to look up the account first.
        prefix: the prefix in the default bucket for outputs.
    """

    def __init__(
        self,
        session: Any = None,
        bucket: str | None = None,
        memory: AccountMemory | None = None,
        prefix: str | None = None,
    ) -> None:
        self._given: boto3.Session | None = getattr(session, "boto_session", session)
        self._bucket = bucket or getattr(session, "_default_bucket_name_override", None)
        self._prefix: str = prefix or getattr(session, "default_bucket_prefix", None) or ""
        self._memory = memory
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()

    @classmethod
    def of(cls, session: Any, memory: AccountMemory | None = None) -> Aws:
        """The account of a `cloudtrain.Session`, which shares it, or of another session, as in the constructor."""
        own = getattr(session, "aws", None)
        return own if isinstance(own, Aws) else cls(session, memory=memory)

    def use_client(self, service: str, client: Any) -> None:
        """Use this boto3 client of ``service`` from now on."""
        self._clients[service] = client

    @cached_property
    def region(self) -> str:
        """The region. Raises PlatformError if none is configured."""
        region = self.session.region_name
        if not region:
            raise PlatformError(
                "no AWS region is configured",
                hint="Set AWS_DEFAULT_REGION, or region in ~/.aws/config: aws configure.",
            )
        return region

    @cached_property
    def account(self) -> str:
        """The number of the account, requested from STS once for an access key."""
        with aws_errors("the account"):
            credentials = self.session.get_credentials() if self._memory else None
            key = credentials and credentials.get_frozen_credentials().access_key
            endpoint = self._configured_endpoint() if self._memory and key else ""
            known = self._memory.find(key, endpoint) if self._memory and key else None
            if known:
                return known
            account = str(self.client("sts").get_caller_identity()["Account"])
            if self._memory and key:
                self._memory.add(key, endpoint, account)
            return account

    def _configured_endpoint(self) -> str:
        """The endpoints in the session's profile, as text: equal endpoints have equal texts."""
        session = self.session._session
        profile = session.get_scoped_config()
        services = session.full_config.get("services", {}).get(profile.get("services"), {})
        return repr((profile.get("endpoint_url"), services))

    @property
    def partition(self) -> str:
        """The partition in ARNs of the region: ``aws``, ``aws-cn`` or ``aws-us-gov``."""
        with aws_errors(f"the region {self.region}"):
            return self.session.get_partition_for_region(self.region)

    @property
    def default_bucket(self) -> str:
        """The name of the SageMaker SDK's default bucket, which may not exist yet."""
        return self._bucket or f"sagemaker-{self.region}-{self.account}"

    @property
    def default_output_path(self) -> str:
        """The output path of jobs that have none: the default bucket, or the session's prefix in it."""
        prefix = self._prefix.strip("/")
        return f"s3://{self.default_bucket}/{prefix}/" if prefix else f"s3://{self.default_bucket}/"

    def own_folder(self, job: TrainingJob) -> str:
        """The folder of cloudtrain's uploads: in the bucket of the job's output, which needs no further permissions, or
        in the default bucket.
        """
        output = job.output_path or ""
        bucket = output.split("/")[2] if output.startswith("s3://") else None
        return f"s3://{bucket}/cloudtrain" if bucket else f"{self.default_output_path}cloudtrain"

    def client(self, service: str, *, region: str | None = None, attempts: int = ATTEMPTS) -> Any:
        """The boto3 client of ``service``, which is thread-safe. It retries failed requests with increasing delays.

        Args:
            region: overrides the region of the jobs.
            attempts: the maximum number of attempts of a request.
        """
        with self._lock:
            is_usual = service in self._clients or attempts == ATTEMPTS
            key = service if is_usual else f"{service}, {attempts} attempts"
            if key not in self._clients:
                from botocore.config import Config

                config = Config(
                    connect_timeout=CONNECT_TIMEOUT,
                    read_timeout=READ_TIMEOUT,
                    retries={"mode": "adaptive", "total_max_attempts": attempts},
                    user_agent_extra=f"cloudtrain/{__version__}",
                )
                session: Any = self.session  # boto3's stubs require a literal as the name
                subject = f"the AWS service {service}"
                try:
                    with aws_errors(subject):
                        self._clients[key] = session.client(
                            service, region_name=region or self.region, config=config
                        )
                except ValueError as error:  # an endpoint that is not a URL
                    raise PlatformError(
                        f"{subject}: {error}",
                        hint="Check AWS_ENDPOINT_URL, and endpoint_url in ~/.aws/config.",
                    ) from error
            return self._clients[key]

    def service_model(self, service: str) -> dict[str, Any]:
        """botocore's description of ``service``, which its client reads too. Needs neither region nor credentials."""
        loader = self.session._session.get_component("data_loader")
        with aws_errors(f"the AWS service {service}"):
            model: dict[str, Any] = loader.load_service_model(service, "service-2", api_version=None)
        return model

    @cached_property
    def session(self) -> boto3.Session:
        """The given session, or a new one. All clients share it, because creating one is slow."""

        with aws_errors("the AWS configuration"):
            return self._given or new_session()


def owner_of(uri: str) -> str | None:
    """The account in the name of the default bucket of ``uri``; None for any other bucket.

    The names of buckets are global. An attacker could create the default bucket of another account, to read its uploads
    or to run code in its jobs.
    """
    match = _DEFAULT_BUCKET.match(uri)
    return match["account"] if match else None


def new_session() -> boto3.Session:
    """A session like ``boto3.Session()``. Raises botocore's errors for invalid settings."""
    import boto3
    from botocore.session import get_session

    session = get_session()
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    return boto3.Session(botocore_session=session)


@cache
def _loader(data_path: str | None) -> Loader:
    """The loader of all sessions of this process, which caches the files that it reads."""
    loader = create_loader(data_path)
    loader.file_loader = _DataFiles()
    return loader


class _DataFiles(JSONFileLoader):
    def load_file(self, file_path: str) -> Any:
        """The content of the file with this path and any suffix; None if there is none."""
        with suppress(FileNotFoundError), open(f"{file_path}.json", "rb") as file:
            return msgspec.json.decode(file.read())
        with suppress(FileNotFoundError), gzip.open(f"{file_path}.json.gz") as file:
            return msgspec.json.decode(file.read())
        return None
