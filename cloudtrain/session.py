"""`Session`: the part of the SageMaker SDK's session that training needs: an account, its bucket and its files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from cloudtrain.aws import Aws, aws_errors, owner_of
from cloudtrain.contract.text import print_lines
from cloudtrain.errors import NotSupported, StorageError
from cloudtrain.execution_role import identity_arn
from cloudtrain.job import Job
from cloudtrain.platforms.sagemaker import SageMakerPlatform
from cloudtrain.platforms.sagemaker.accounts import KnownAccounts
from cloudtrain.storage import Progress, S3Store, join_uri, list_tree, split_uri
from cloudtrain.storage.transfer import download_entries
from cloudtrain.upload import upload_data

if TYPE_CHECKING:
    import boto3


class NoSuchAttribute(NotSupported, AttributeError):
    """The session has no attribute of this name."""


class Session:
    """An AWS account and region. Calls AWS only when needed.

    The arguments have the names and positions of the SageMaker SDK, version 2.

    Args:
        boto_session: defaults to boto3's default session: the environment, the profile, SSO, the role of the machine.
        sagemaker_client: the boto3 client for training jobs; defaults to one of ``boto_session``.
        sagemaker_runtime_client: not used: cloudtrain calls no endpoints.
        default_bucket: the bucket for sources, outputs and `upload_data`; defaults to
            ``sagemaker-<region>-<account>``.
        default_bucket_prefix: the prefix in that bucket for outputs.
        others: the SDK's other arguments are accepted but not used.

    >>> session = Session()                       # doctest: +SKIP
    >>> session.upload_data("data", key_prefix="mnist")  # doctest: +SKIP
    's3://sagemaker-us-east-1-123456789012/mnist'
    """

    local_mode = False

    def __init__(
        self,
        boto_session: boto3.Session | None = None,
        sagemaker_client: Any = None,
        sagemaker_runtime_client: Any = None,
        sagemaker_featurestore_runtime_client: Any = None,
        default_bucket: str | None = None,
        settings: Any = None,
        sagemaker_metrics_client: Any = None,
        sagemaker_config: Mapping[str, Any] | None = None,
        default_bucket_prefix: str | None = None,
    ) -> None:
        self._aws = Aws(boto_session, default_bucket, KnownAccounts(), default_bucket_prefix)
        if sagemaker_client is not None:
            self._aws.use_client("sagemaker", sagemaker_client)
        self.sagemaker_runtime_client = sagemaker_runtime_client
        self.default_bucket_prefix = default_bucket_prefix
        self.settings = settings
        self.config: Any = None
        self.sagemaker_config = dict(sagemaker_config or {})

    @property
    def aws(self) -> Aws:
        """The access to the account that estimators of this session share."""
        return self._aws

    @property
    def boto_session(self) -> boto3.Session:
        return self._aws.session

    @property
    def boto_region_name(self) -> str:
        """The region. Raises PlatformError if none is configured."""
        return self._aws.region

    @property
    def _region_name(self) -> str:
        """The region, by the SDK's private name: many notebooks use it."""
        return self._aws.region

    @property
    def sagemaker_client(self) -> Any:
        """The boto3 client of SageMaker, for what cloudtrain leaves out: endpoints, models, processing jobs."""
        return self._aws.client("sagemaker")

    @property
    def s3_client(self) -> Any:
        return self._aws.client("s3")

    @property
    def s3_resource(self) -> Any:
        return self.boto_session.resource("s3", region_name=self.boto_region_name)

    def account_id(self) -> str:
        """The number of the account. Raises PlatformError if AWS does not report it."""
        return self._aws.account

    def get_caller_identity_arn(self) -> str:
        """The ARN of the role of this SageMaker notebook, or of the user or role of the credentials."""
        return identity_arn(self._aws)

    def expand_role(self, role: str) -> str:
        """The ARN of a role that is given by its name or ARN. Raises PlatformError if there is no such role."""
        if "/" in role:
            return role
        with aws_errors(f"role {role}"):
            return str(self._aws.client("iam").get_role(RoleName=role)["Role"]["Arn"])

    def default_bucket(self) -> str:
        """The bucket for sources, outputs and `upload_data`, which is created if it does not exist.

        Raises:
            PlatformError: AWS denies access, or the bucket of this name belongs to another account.
        """
        return SageMakerPlatform(self).existing_default_bucket()

    def upload_data(
        self,
        path: str | os.PathLike[str],
        bucket: str | None = None,
        key_prefix: str = "data",
        callback: Progress | None = None,
        extra_args: Mapping[str, Any] | None = None,
    ) -> str:
        """Copy a file, or all files of a folder, to S3. Returns the URI: see `cloudtrain.upload_data`."""
        return upload_data(path, bucket, key_prefix, callback, extra_args, session=self)

    def download_data(
        self,
        path: str | os.PathLike[str],
        bucket: str,
        key_prefix: str = "",
        extra_args: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Copy an object, or all objects of a folder, from S3 into the folder ``path``. Returns the files' paths.

        Raises:
            StorageError: there is no such bucket, or a file cannot be written; see `cloudtrain.storage`.
        """
        if extra_args:
            raise NotSupported(
                f"download_data: extra_args {', '.join(extra_args)}: cloudtrain has no options for downloads",
                hint="Use boto3: session.s3_client.download_file(bucket, key, path, ExtraArgs=...).",
            )
        folder, prefix = Path(path), key_prefix.strip("/")
        if prefix and not key_prefix.endswith("/"):
            parent, name = split_uri(f"s3://{bucket}/{prefix}")
            store = self._store(parent)
            found = store.stat(name)
            if found is not None:
                download_entries(store, [found], folder)
                return [str(folder / name)]
        store = self._store(join_uri(f"s3://{bucket}", *filter(None, [prefix])))
        entries = list_tree(store)
        if not entries:
            warnings.warn(f"there is nothing to download below {store.uri}", stacklevel=2)
            return []
        download_entries(store, entries, folder)
        return [str(folder / entry.key) for entry in entries if not entry.key.endswith("/")]

    def upload_string_as_file_body(
        self, body: str | bytes, bucket: str | None, key: str, kms_key: str | None = None
    ) -> str:
        """Write ``body`` to an object. Returns its URI. ``bucket`` defaults to the default bucket."""
        uri = join_uri(f"s3://{bucket or self.default_bucket()}", key)
        data = body.encode() if isinstance(body, str) else body
        encryption = {"SSEKMSKeyId": kms_key, "ServerSideEncryption": "aws:kms"} if kms_key else {}
        owner = owner_of(uri)
        with aws_errors(uri):
            self.s3_client.put_object(
                Bucket=bucket or self.default_bucket(),
                Key=key,
                Body=data,
                **encryption,
                **({"ExpectedBucketOwner": owner} if owner else {}),
            )
        return uri

    def read_s3_file(self, bucket: str, key_prefix: str) -> str:
        """The text of an object. Raises NotFound, or StorageError if it is not UTF-8."""
        folder, name = split_uri(f"s3://{bucket}/{key_prefix}")
        try:
            return self._store(folder).read(name).decode()
        except UnicodeDecodeError as error:
            raise StorageError(
                f"s3://{bucket}/{key_prefix} is not text: {error.reason}", hint="Use S3Downloader.read_bytes."
            ) from error

    def list_s3_files(self, bucket: str, key_prefix: str) -> list[str]:
        """The keys that start with ``key_prefix``."""
        return [found.key for found in self._store(f"s3://{bucket}").list(key_prefix)]

    def describe_training_job(self, job_name: str) -> dict[str, Any]:
        """SageMaker's response to DescribeTrainingJob. Raises JobNotFound."""
        from cloudtrain.platforms.sagemaker.training_job import describe_training_job

        return dict(describe_training_job(job_name, self._aws))

    def stop_training_job(self, job_name: str) -> None:
        """Stop the job. Raises JobNotFound."""
        self._job(job_name).stop()

    def wait_for_job(self, job: str, poll: float = 30, timeout: float | None = None) -> dict[str, Any]:
        """Wait until the job has ended. Returns the response to DescribeTrainingJob. Raises TrainingFailed."""
        self._job(job).wait(timeout)
        return self.describe_training_job(job)

    def logs_for_job(
        self,
        job_name: str,
        wait: bool = False,
        poll: float = 10,
        log_type: str = "All",
        timeout: float | None = None,
    ) -> None:
        """Print the output of the job; with ``wait``, until it ends. Raises JobNotFound, and TrainingFailed."""
        job = self._job(job_name)
        if log_type != "None":
            print_lines(self._aws_lines(job, wait))
        if wait:
            job.wait(timeout)

    def _aws_lines(self, job: Job, wait: bool) -> Any:
        return job.follow() if wait else job.platform.logs(job.name)

    def _job(self, name: str) -> Job:
        return Job(name, SageMakerPlatform(self))

    def _store(self, uri: str) -> S3Store:
        return S3Store(uri, self.boto_session, owner=owner_of(uri))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise NoSuchAttribute(
            f"Session has no {name}: it has only the SageMaker SDK's members for training",
            hint="Use boto3 for the rest: session.sagemaker_client.create_endpoint(...).",
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.boto_session.region_name}>"


class LocalSession(Session):
    """The session of the SDK's local mode: jobs whose ``instance_type`` is ``local`` run in containers.

    The class makes no difference: the instance type alone decides.
    """

    local_mode = True
