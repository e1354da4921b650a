"""The path of a job from its description to a platform."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from cloudtrain._dataclass import dataclass
from cloudtrain.config import SECTIONS, read_config, read_section
from cloudtrain.errors import InDoubt, InvalidJob
from cloudtrain.index import IndexEntry, add_job, remove_submission
from cloudtrain.job import Job
from cloudtrain.packaging import SourceArchive, check_entry_point, pack
from cloudtrain.packaging.cache import archives_home, hold_caches
from cloudtrain.packaging.entry_point import locate
from cloudtrain.platforms import (
    AccountStorage,
    JobWarnings,
    Naming,
    Platform,
    Request,
    Resolver,
    Resubmission,
    WarmUp,
    get_platform,
)
from cloudtrain.platforms.common.ignored import ignored_fields
from cloudtrain.platforms.lost_hosts import check_lost_hosts
from cloudtrain.platforms.registry import check_result
from cloudtrain.spec import RULE_SOURCE, Source, TrainingInput, TrainingJob, base_name, new_job_name
from cloudtrain.spec.names import clean, existing_to_uri
from cloudtrain.spec.secrets import secret_values
from cloudtrain.spec.warnings import job_warnings
from cloudtrain.storage import join_uri, open_store, split_uri, uri_to_path

if TYPE_CHECKING:
    from cloudtrain.data.local_data import CopyFile, PlacedData

OnUpload = Callable[[int], None]
"""Called with the number of bytes just uploaded."""
OnRead = Callable[[int], None]
"""Called with the number of bytes just read."""


Say = Callable[[str], object]
NOT_WAITING = "platform_options.capacity_retries has no effect: only a process that waits submits a job again"
"""The warning for a job that requests another submission by a process that does not wait for it."""
NOT_SENT = (
    "notify: jobs on {platform} send nothing. On a machine that stays on, run: cloudtrain notify JOB --wait"
)


@dataclass(frozen=True)
class Upload:
    """One thing to upload. ``size`` is in bytes."""

    size: int
    run: Callable[[OnUpload | None, Say | None], None]


@dataclass(frozen=True)
class Submission:
    """A job that is packed and rendered; nothing is uploaded or started yet."""

    job: TrainingJob
    platform: Platform
    request: Request
    archive: SourceArchive | None
    data: Mapping[str, PlacedData] = field(default_factory=dict)
    """The channels that are files of this machine and are uploaded to the platform's storage."""
    indexed: bool = True
    """Whether ``cloudtrain list`` shows the job."""
    caches: IO[bytes] | None = field(default=None, repr=False, compare=False)
    """Keeps the packed source in the cache until the job has started."""

    @property
    def warnings(self) -> list[str]:
        """Warnings about the job and its source, one sentence each."""
        return [*(self.archive.warnings if self.archive else ()), *self.job_warnings]

    @property
    def job_warnings(self) -> list[str]:
        own = self.platform.job_warnings(self.job) if isinstance(self.platform, JobWarnings) else ()
        if self.job.notify and not getattr(self.platform, "sends_notifications", False):
            own = [*own, NOT_SENT.format(platform=self.platform.name)]
        return [*job_warnings(self.job), *ignored_fields(self.platform.name, self.job), *own]

    @property
    def projection(self) -> str:
        """The most that the job can cost before it is stopped, as a sentence; empty if its price is not known."""
        if self.job.cost_terms is None:
            return ""
        from cloudtrain.cost.terms import projection

        return projection(self.job, self.platform.name)

    @property
    def uploads(self) -> list[Upload]:
        """The uploads to the platform's storage: the source, unless it stays in the cache of this machine, and data."""
        uploads = [Upload(data.size, data.upload) for data in self.data.values()]
        if self.archive and self.job.source and self.job.source.uri != self.archive.path.as_uri():
            uploads.insert(0, Upload(self.archive.size, self._upload_source))
        return uploads

    def submit(self, on_upload: OnUpload | None = None, say: Say | None = None) -> Job:
        """Upload the source and local data, unless they are there already, and hand the request to the platform.

        Args:
            say: called with a line before a channel is uploaded.

        Raises:
            StorageError: the source or a channel cannot be uploaded.
            PlatformError: the platform refuses the job.
        """
        self.upload(on_upload, say)
        return self.start()

    def start(self) -> Job:
        """Hand the request to the platform. Everything must have been uploaded. Raises PlatformError."""
        with self.caches or contextlib.nullcontext():
            return self._start()

    def resubmission(self) -> Callable[[Say], bool] | None:
        """See `cloudtrain.platforms.Resubmission`; None if the platform does not have this ability."""
        if not isinstance(self.platform, Resubmission):
            return None
        return self.platform.resubmission(self.job, self.request)

    def _start(self) -> Job:
        if self.indexed:
            from cloudtrain.history.parameters import facts_of_job

            return hand_over(self.platform, self.request, *facts_of_job(self.job))
        self.platform.submit(self.request)
        return Job(self.request.job_name, self.platform)

    def upload(self, on_upload: OnUpload | None = None, say: Say | None = None) -> None:
        """Upload the source and local data, unless they are there already. Raises StorageError."""
        for upload in self.uploads:
            upload.run(on_upload, say)

    def _upload_source(self, on_upload: OnUpload | None = None, _say: Say | None = None) -> None:
        assert self.archive and self.job.source
        path, uri = self.archive.path, self.job.source.uri
        if isinstance(self.platform, AccountStorage):
            _upload_to(uri, self.job, self.platform)(path, uri, on_upload)
            return
        folder, name = split_uri(uri)
        open_store(folder).upload(path, name, on_upload, if_absent=True)


def hand_over(
    platform: Platform, request: Request, facts: Mapping[str, Any], parameters: Mapping[str, str]
) -> Job:
    """Submit a request whose job has these facts and parameters. Raises PlatformError, StorageError."""
    job = Job(request.job_name, platform)
    # indexed first, so that a running job can always be found
    number = add_job(IndexEntry(job.name, platform.name, time.time()), facts, parameters)
    try:
        platform.submit(request)
    except InDoubt:
        raise
    except Exception:
        remove_submission(number)
        raise
    return job


def _with_terms(job: TrainingJob, platform: Platform, max_run: int | None) -> TrainingJob:
    """See `cloudtrain.cost.terms.with_terms`, which is slow to import: most jobs have neither prices nor caps.

    Args:
        max_run: the one that the user set. It may not cost more than ``max_cost``; a platform's default may.
    """
    given = (job.cost_terms, job.max_cost, job.max_gpu_hours)
    if platform.name != "sagemaker" and given == (None, None, None) and not read_section("prices"):
        return job
    from cloudtrain.cost.terms import check_projection, with_terms

    job = with_terms(job, platform)
    check_projection(job, max_run, job.max_cost)
    return job


def prepare(
    fields: Mapping[str, Any],
    platform: Platform | None = None,
    session: Any = None,
    *,
    submits: bool = False,
    is_template: bool = False,
    is_share: bool = False,
    defaults: Mapping[str, Any] | None = None,
    on_read: OnRead | None = None,
) -> Submission:
    """Validate, pack and render a job. ``fields`` override the defaults.

    Args:
        platform: the platform object; by default, the platform is found by its name.
        submits: whether the job will be submitted, not only displayed: a platform may prepare for it.
        is_template: whether another service will run the job, any number of times. A generated name then has no time.
        is_share: whether ``max_cost`` is a trial's share of a sweep's budget, which may be less than ``max_run`` costs.
        defaults: values of fields that ``fields`` lacks; None for those of the config file.
        on_read: called with the number of bytes just read from a channel on this machine that will be uploaded.
        session: the AWS session of a job on SageMaker: a ``boto3.Session``, or the SageMaker SDK's.

    Raises:
        InvalidJob: the description is wrong, or this process lacks a variable that its ``secrets`` name.
        InvalidSource: the source cannot be packed.
        PlatformError: there is no such platform, or it violates the protocol `Platform`.
    """
    caches = hold_caches()
    try:
        return _prepare(fields, platform, session, submits, is_template, is_share, defaults, on_read, caches)
    except BaseException:
        if caches:
            caches.close()
        raise


def _prepare(
    fields: Mapping[str, Any],
    platform: Platform | None,
    session: Any,
    submits: bool,
    is_template: bool,
    is_share: bool,
    defaults: Mapping[str, Any] | None,
    on_read: OnRead | None,
    caches: IO[bytes] | None,
) -> Submission:
    defaults = read_config() if defaults is None else defaults
    job = TrainingJob.from_dict(_with_uris({**defaults, **fields}))
    max_run = None if is_share else job.max_run
    by_name = platform is None
    platform = platform or _find_platform(job.platform or default_platform(job), session)
    check_lost_hosts(job, platform)
    if submits and isinstance(platform, WarmUp):
        platform.warm_up()
    job, archive = _pack(job)
    if job.job_name is None:
        base = base_name(job) or Path(job.entry_point or platform.name).stem
        if isinstance(platform, Naming):
            base = platform.base_name(base)
        job = msgspec.structs.replace(
            job, job_name=clean(base) or "job" if is_template else new_job_name(base)
        )
    if isinstance(platform, Resolver):
        job = check_result(platform, "resolve", platform.resolve(job), TrainingJob)
    job = _with_terms(job, platform, max_run)
    if archive:
        job = msgspec.structs.replace(job, source=_source(job, archive, platform))
    job, data = _place_data(job, platform, on_read)
    request = check_result(platform, "render", platform.render(job), Request)
    names = dict.fromkeys(job.secrets)
    if job.notify and getattr(platform, "sends_notifications", False):
        from cloudtrain.spec.notify import notify_variables

        names |= dict.fromkeys(notify_variables(job.notify))
    if names:
        request = replace(request, secrets={**request.secrets, **secret_values([*names], os.environ)})
    return Submission(job, platform, request, archive, data, indexed=by_name, caches=caches)


def secrets_left_out(names: Sequence[str]) -> str:
    """The warning that these secrets are not given to a service that starts jobs, with another way to get them."""
    return (
        f"{', '.join(names)}: left out, because the service shows what it stores. Keep secrets in AWS Secrets Manager, "
        "allow the job's role secretsmanager:GetSecretValue, and read them in the script."
    )


def _with_uris(fields: dict[str, Any]) -> dict[str, Any]:
    """``fields`` with channels that are local files or folders as URIs. Raises InvalidJob if one does not exist."""
    inputs = fields.get("inputs")
    if not isinstance(inputs, Mapping):
        return fields
    return {**fields, "inputs": {name: _with_uri(name, channel) for name, channel in inputs.items()}}


def _with_uri(name: str, channel: Any) -> Any:
    if isinstance(channel, Mapping) and "s3_data" in channel:
        return {**channel, "s3_data": _with_uri(name, channel["s3_data"])}
    channel = existing_to_uri(channel)
    if isinstance(channel, (str, Path)) and "://" not in str(channel):
        raise InvalidJob(
            f"inputs.{name}: there is no file or folder {channel}, and it is not an s3://, gs:// or file:// URI",
            hint="A channel is a file or folder on this machine, or a URI: s3://bucket/prefix.",
        )
    return channel


def _pack(job: TrainingJob) -> tuple[TrainingJob, SourceArchive | None]:
    """The job, with the path of its entry point in the archive, and the archive; None for a source packed earlier."""
    if job.source_dir and job.source_dir.startswith("s3://"):
        if job.dependencies:
            raise InvalidJob(
                f"dependencies: cannot be added to a source that is packed already: {job.source_dir}",
                hint="Add them to that archive, or use a source_dir on this machine.",
            )
        return msgspec.structs.replace(job, source=Source(job.source_dir, "")), None
    if job.entry_point is None:
        return job, None
    folder, entry_point = locate(job.source_dir or None, job.entry_point)
    source_dir = Path(folder) if folder else None
    is_added = source_dir is not None and entry_point in {Path(path).name for path in job.dependencies}
    name = entry_point if is_added else check_entry_point(source_dir, entry_point)
    archive = pack(
        source_dir or Path(entry_point),
        [Path(path) for path in job.dependencies],
        cache_dir=archives_home(),
        allow_secrets=job.allow_secrets,
        limits=job.source_limits,
    )
    return msgspec.structs.replace(job, entry_point=name), archive


def _place_data(
    job: TrainingJob, platform: Platform, on_read: OnRead | None
) -> tuple[TrainingJob, dict[str, PlacedData]]:
    """The job with the URIs that its local channels will have in the platform's storage, and these channels.

    They are below the code location, under the hash of their content. A platform without its own storage reads
    them where they are.
    """
    local = {
        f"inputs.{name}": channel.s3_data
        for name, channel in job.channels.items()
        if isinstance(channel, TrainingInput) and channel.s3_data.startswith("file://")
    } | _rule_sources(job)
    if not local or not isinstance(platform, AccountStorage):
        return job, {}
    from cloudtrain.data.local_data import PlacedData, hash_data

    location = join_uri(platform.code_location(job), "data")
    placed: dict[str, PlacedData] = {}
    for place, uri in local.items():
        path = uri_to_path(uri)
        if not path.exists():
            raise InvalidJob(f"{place}: there is no file or folder {path}")
        name = place.removeprefix("inputs.")
        copy = _upload_to(location, job, platform)
        placed[name] = PlacedData(name, hash_data(path, on_read), location, platform.open_store, copy)
    inputs = {
        name: msgspec.structs.replace(channel, s3_data=placed[name].uri) if name in placed else channel
        for name, channel in job.inputs.items()
    }
    model = job.model_uri
    if job.model_channel_name in placed and job.model_channel_name not in job.inputs:
        model = placed[job.model_channel_name].uri
    rules = [
        msgspec.structs.replace(rule, rule_parameters={**rule.rule_parameters, RULE_SOURCE: placed[name].uri})
        if (name := f"rules[{number}]") in placed
        else rule
        for number, rule in enumerate(job.rules)
    ]
    return msgspec.structs.replace(job, inputs=inputs, model_uri=model, rules=rules), placed


def _rule_sources(job: TrainingJob) -> dict[str, str]:
    """The files of this machine with the user's own rules, by their places in the job."""
    sources = {
        f"rules[{number}]": rule.rule_parameters.get(RULE_SOURCE, "") for number, rule in enumerate(job.rules)
    }
    return {place: uri for place, uri in sources.items() if uri.startswith("file://")}


def _upload_to(uri: str, job: TrainingJob, platform: AccountStorage) -> CopyFile:
    """The platform's upload function, with the KMS key for uploads of ``job`` to ``uri``."""
    if job.output_kms_key:
        from cloudtrain.aws.encryption import upload_key

        key = upload_key(uri, job.output_path, job.output_kms_key)
        if key:
            return partial(platform.upload, kms_key=key)
    return platform.upload


def _find_platform(name: str, session: Any) -> Platform:
    if session is None or name != "sagemaker":
        return get_platform(name)
    from cloudtrain.platforms.sagemaker import SageMakerPlatform

    return SageMakerPlatform(session)


LOCAL_TYPES = ("local", "local_gpu")
"""The SageMaker SDK's instance types for containers on this machine."""


def default_platform(job: TrainingJob) -> str:
    """The platform of a job that names none: ``sagemaker``, ``container`` if the job has an image, or ``local``.

    Raises InvalidJob for an instance type that is neither SageMaker's nor this machine's: another platform has it.
    """
    if any(kind.startswith("ml.") for kind in job.instance_types):
        return "sagemaker"
    for kind in job.instance_types:
        if kind not in LOCAL_TYPES:
            raise _without_platform(kind)
    return "container" if job.image_uri else "local"


def _without_platform(kind: str) -> InvalidJob:
    owners = [name for name in SECTIONS if kind in _types_in_config(name)]
    if not owners and re.fullmatch(r"[a-z][a-z0-9-]*\.[a-z0-9-]+", kind):
        return InvalidJob(
            f"instance_type: {kind} is not an instance type of SageMaker, which begins with ml., and the job names no "
            "platform",
            hint=f"For SageMaker, write ml.{kind}. For another platform, name it: platform='local' "
            "(--platform local) runs the job on this machine.",
        )
    first = owners[0] if owners else "slurm"
    return InvalidJob(
        f"instance_type: {kind} belongs to a cluster, and the job names no platform",
        hint=f"Name it: platform={first!r} (--platform {first}). SageMaker's types begin with ml.",
    )


def _types_in_config(section: str) -> set[str]:
    """The instance types that the user's config file describes for a platform."""
    found = read_section(section)
    tables = [found, *(found.get("profiles") or {}).values()]
    return {kind for table in tables for kind in table.get("instance_types") or ()}


def _source(job: TrainingJob, archive: SourceArchive, platform: Platform) -> Source:
    """The source of the job: the archive below the code location, under its hash, or in the cache."""
    location = platform.code_location(job) if isinstance(platform, AccountStorage) else job.code_location
    folder = join_uri(location, archive.sha256) if location else archive.path.parent.as_uri()
    commit = archive.git.version if archive.git else ""
    return Source(join_uri(folder, archive.path.name), archive.sha256, commit)
