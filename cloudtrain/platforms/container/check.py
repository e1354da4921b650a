"""Checks before submission whether a job would fail in its image, on this machine or in the cloud."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from urllib.parse import urlsplit

from cloudtrain.contract.request_body import request_settings
from cloudtrain.engine.engine import find_engine
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.checks import Check, Finding, failed, ok, unknown, warning
from cloudtrain.platforms.common.machine_checks import check_bucket, check_disk, check_input, immediately
from cloudtrain.platforms.container import _image_findings
from cloudtrain.platforms.container._image import Image, ProbeResult, Source
from cloudtrain.platforms.container.render import ContainerOptions
from cloudtrain.spec import TrainingJob
from cloudtrain.storage import state_home

_CLOUD = re.compile(r"ml[._]")
_GPU = re.compile(r"ml[._][gp]\d|local_gpu$")
_ARM = re.compile(r"ml[._][a-z]+\d+g[a-z]*[._]")


def checks(job: TrainingJob, request: Request | None, imports: Sequence[str]) -> Mapping[str, Check]:
    """All checks by name. The checks of the image share one container, which has no network."""
    found: dict[str, Check] = {
        "engine": partial(check_engine, ContainerOptions.of(job).engine),
        "disk": check_disk,
    }
    if request:
        source = Source.of(job)
        required = source.required if source else ()
        imports = sorted({*imports, *(name for name in _image_findings.FRAMEWORKS if name in required)})
        image = Image(request.body, source, imports)
        found["image"] = partial(
            check_image,
            image,
            pull=request.body["pull"],
            needs_python=request.body["runtime"] == "cloudtrain",
        )
        found["architecture"] = partial(check_architecture, image, _instance_types(job))
        for name, finding_of in _image_checks(job, request, source, imports):
            found[name] = image.check(finding_of)
        found.update(_storage(job, request))
    return found


def _image_checks(
    job: TrainingJob, request: Request, source: Source | None, imports: Sequence[str]
) -> Iterator[tuple[str, _image_findings.FindingOf]]:
    lines = source.requirements if source else ()
    if request.body["runtime"] == "cloudtrain":
        yield "python", _image_findings.on_python
    if lines:
        yield "requirements", partial(_image_findings.on_requirements, lines, job.enable_network_isolation)
    if imports:
        yield "imports", partial(_image_findings.on_imports, lines)
    if source:
        yield "script", partial(_image_findings.on_script, source.script, source.is_guarded, lines)
    if set(imports) & set(_image_findings.FRAMEWORKS):
        kind = next((kind for kind in _instance_types(job) if _GPU.match(kind)), "")
        yield "gpu", partial(_image_findings.on_gpu, kind)
    if job.distribution and "mpi" in job.distribution.enabled:
        yield "mpirun", _image_findings.on_mpirun


def _storage(job: TrainingJob, request: Request) -> Iterator[tuple[str, Check]]:
    settings = request_settings(request.body)
    places: dict[str, str] = {}
    for name, uri in settings.channels:
        yield f"input {name}", partial(immediately, partial(check_input, name, uri))
    for field in ("output_path", "checkpoint_s3_uri", "code_location"):
        places[field] = getattr(job, field) or ""
        if places[field].startswith("s3://"):
            yield f"bucket {urlsplit(places[field]).netloc}", partial(check_bucket, places[field])
    own = state_home().as_uri()
    here = [field for field, uri in places.items() if uri.startswith("file://") and not uri.startswith(own)]
    if here:
        yield "places", partial(check_places, here)


def _instance_types(job: TrainingJob) -> list[str]:
    return job.instance_types or ["local"]


def check_engine(choice: str | None) -> Finding:
    """Raises PlatformError if no engine responds."""
    engine = find_engine(choice)
    version = engine.connect().version()["Version"]
    return ok(f"{engine.kind} {version} at {engine.url}")


def check_image(image: Image, *, pull: str, needs_python: bool) -> Finding:
    """Whether the image is on this machine and its containers start. Does not pull it.

    Raises:
        PlatformError: a container of the image cannot be started.
    """
    about = image.about()
    if about is None:
        what = f"{image.name} is not on this machine"
        if pull == "never":
            return failed(what, "Build the image, or remove platform_options.pull.")
        return unknown(f"{what}: the job would pull it", "Pull it first, and check again.")
    result = image.probe_result()
    if isinstance(result, PlatformError):
        raise result
    if needs_python and isinstance(result, ProbeResult) and result.python is None:
        return failed(
            f"{image.name} has no working Python",
            "cloudtrain's runtime needs Python 3.9 or newer, and /bin/sh. To run the image's own program instead, "
            'set runtime="toolkit".',
        )
    return ok(f"{image.name}, {about['Size'] / 1e9:.1f} GB")


def check_architecture(image: Image, instance_types: Sequence[str]) -> Finding:
    """Whether the cloud's instances can run the image."""
    about = image.about()
    if about is None:
        return unknown(f"{image.name} is not on this machine")
    for kind in filter(_CLOUD.match, instance_types):
        wanted = "arm64" if _ARM.match(kind) else "amd64"
        if about["Architecture"] != wanted:
            return failed(
                f"the image is for {about['Architecture']}, and {kind} is {wanted}",
                f"Build it for the instance: docker build --platform linux/{wanted}",
            )
    return ok(f"{about['Os']}/{about['Architecture']}")


def check_places(fields: Sequence[str]) -> Finding:
    """A warning about URIs that a cloud cannot reach."""
    return warning(
        f"on this machine only: {', '.join(fields)}",
        "This works on this machine. In a cloud, they must be s3:// URIs.",
    )
