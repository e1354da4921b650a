"""What would make a job fail in its image, here or in the cloud, looked for before it is submitted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from urllib.parse import urlsplit

from cloudtrain.engine.engine import find_engine
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.checks import Check, CheckStatus, Finding
from cloudtrain.platforms.common.machine_checks import check_bucket, check_disk, check_input
from cloudtrain.platforms.common.request_body import request_settings
from cloudtrain.platforms.container import _verdicts
from cloudtrain.platforms.container._answers import Answers
from cloudtrain.platforms.container._image import Image, Source
from cloudtrain.platforms.container.options import ContainerOptions
from cloudtrain.spec import TrainingJob
from cloudtrain.storage import state_home

_CLOUD = re.compile(r"ml[._]")
_GPU = re.compile(r"ml[._][gp]\d|local_gpu$")
_ARM = re.compile(r"ml[._][a-z]+\d+g[a-z]*[._]")


def checks(job: TrainingJob, request: Request | None, imports: Sequence[str]) -> Mapping[str, Check]:
    """All checks by name. Those of the image share one container of it, which has no network."""
    found: dict[str, Check] = {
        "engine": partial(check_engine, ContainerOptions.of(job).engine),
        "disk": check_disk,
    }
    if request:
        source = Source.of(job)
        required = source.required if source else ()
        imports = sorted({*imports, *(name for name in _verdicts.FRAMEWORKS if name in required)})
        image = Image(request.body, source, imports)
        found["image"] = partial(
            check_image,
            image,
            pull=request.body["pull"],
            needs_python=request.body["runtime"] == "cloudtrain",
        )
        found["architecture"] = partial(check_architecture, image, _instance_types(job))
        for name, verdict in _verdicts_on(job, request, source, imports):
            found[name] = image.asked(verdict)
        found.update(_storage(job, request))
    return found


def _verdicts_on(
    job: TrainingJob, request: Request, source: Source | None, imports: Sequence[str]
) -> Iterator[tuple[str, _verdicts.Verdict]]:
    lines = source.requirements if source else ()
    if request.body["runtime"] == "cloudtrain":
        yield "python", _verdicts.on_python
    if lines:
        yield "requirements", partial(_verdicts.on_requirements, lines, job.enable_network_isolation)
    if imports:
        yield "imports", partial(_verdicts.on_imports, lines)
    if source:
        yield "script", partial(_verdicts.on_script, source.script, source.is_guarded, lines)
    if set(imports) & set(_verdicts.FRAMEWORKS):
        kind = next((kind for kind in _instance_types(job) if _GPU.match(kind)), "")
        yield "gpu", partial(_verdicts.on_gpu, kind)
    if job.distribution and "mpi" in job.distribution.enabled:
        yield "mpirun", _verdicts.on_mpirun


def _storage(job: TrainingJob, request: Request) -> Iterator[tuple[str, Check]]:
    settings = request_settings(request.body)
    places = {f"inputs.{name}": uri for name, uri in settings.channels}
    for name, uri in settings.channels:
        yield f"input {name}", partial(check_input, name, uri)
    for field in ("output_path", "checkpoint_s3_uri", "code_location"):
        places[field] = getattr(job, field) or ""
        if places[field].startswith("s3://"):
            yield f"bucket {urlsplit(places[field]).netloc}", partial(check_bucket, places[field])
    own = state_home().as_uri()
    here = [field for field, uri in places.items() if uri.startswith("file://") and not uri.startswith(own)]
    if here:
        yield "places", partial(check_places, here)


def _instance_types(job: TrainingJob) -> list[str]:
    return [group.instance_type for group in job.instance_groups] or [job.instance_type or "local"]


def check_engine(choice: str | None) -> Finding:
    """Raises PlatformError where none answers."""
    engine = find_engine(choice)
    version = engine.connect().version()["Version"]
    return Finding(CheckStatus.OK, f"{engine.kind} {version} at {engine.url}")


def check_image(image: Image, *, pull: str, needs_python: bool) -> Finding:
    """Whether it is here, and starts. One that is not would be pulled, which is not tried.

    Raises PlatformError where no container of it can be started.
    """
    about = image.about()
    if about is None:
        what = f"{image.name} is not on this machine"
        if pull == "never":
            return Finding(CheckStatus.FAILED, what, "Build it, or leave out platform_options.pull.")
        return Finding(
            CheckStatus.UNKNOWN, f"{what}: the job would pull it", "Pull it first, and check again."
        )
    answers = image.answers()
    if isinstance(answers, PlatformError):
        raise answers
    if needs_python and isinstance(answers, Answers) and answers.python is None:
        return Finding(
            CheckStatus.FAILED,
            f"no Python of {image.name} answers",
            "cloudtrain's runtime needs Python 3.9 or newer, and /bin/sh; an image with a program of its own "
            'does not: runtime="toolkit".',
        )
    return Finding(CheckStatus.OK, f"{image.name}, {about['Size'] / 1e9:.1f} GB")


def check_architecture(image: Image, instance_types: Sequence[str]) -> Finding:
    """Whether the instances of the cloud can run it."""
    about = image.about()
    if about is None:
        return Finding(CheckStatus.UNKNOWN, f"{image.name} is not on this machine")
    for kind in filter(_CLOUD.match, instance_types):
        wanted = "arm64" if _ARM.match(kind) else "amd64"
        if about["Architecture"] != wanted:
            return Finding(
                CheckStatus.FAILED,
                f"the image is for {about['Architecture']}, and {kind} is {wanted}",
                f"Build it for the cloud: docker build --platform linux/{wanted}",
            )
    return Finding(CheckStatus.OK, f"{about['Os']}/{about['Architecture']}")


def check_places(fields: Sequence[str]) -> Finding:
    """What a cloud cannot reach."""
    return Finding(
        CheckStatus.WARNING,
        f"on this machine only: {', '.join(fields)}",
        "Here that is well; in a cloud they have to be s3:// URIs.",
    )
