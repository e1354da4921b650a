"""Builds an image from ``containers/`` and the bundled runtime, on a base that is pinned by its digest."""

from __future__ import annotations

import io
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from cloudtrain._version import __version__
from cloudtrain.contract.text import print_line
from cloudtrain.engine.client import engine_errors
from cloudtrain.engine.pulling import pull_hint
from cloudtrain.errors import InvalidJob, PlatformError
from cloudtrain.images.catalogue import CONTAINERS, RECIPE_LABEL, Flavour
from cloudtrain.packaging import pack_runtime
from cloudtrain.storage import state_home

if TYPE_CHECKING:
    from docker import APIClient

Say = Callable[[str], None]
"""Called with each line of the engine's output."""

_COLOURS = re.compile(r"\x1b\[[\d;]*m")

LAST_LINES = 15
"""The number of lines of a failed step's output in its error."""


@dataclass(frozen=True)
class BuildOptions:
    """Options of a build that depend on the machine.

    ``base`` overrides the flavour's base; ``build_base`` is for the stage that installs and compiles. ``wheels`` is a
    folder of wheels for pip, in addition to the package indexes; with ``offline``, pip uses only these wheels.
    ``ca_bundle`` is a file of CA certificates for pip, for example those of a proxy. ``network`` is the network of the
    build's containers, for example ``host``.
    """

    base: str | None = None
    build_base: str | None = None
    wheels: Path | None = None
    offline: bool = False
    ca_bundle: Path | None = None
    network: str | None = None
    platform: str | None = None
    """The platform of the image, for example ``linux/arm64``; None for the engine's."""
    build_args: Mapping[str, str] = field(default_factory=dict)


def build_image(
    client: APIClient,
    flavour: Flavour,
    tag: str,
    options: BuildOptions = BuildOptions(),
    say: Say = print_line,
) -> str:
    """Build ``flavour`` as ``tag``. Returns the image's id. A failed build leaves no container and no tag.

    Raises:
        InvalidJob: an option names a file that does not exist.
        PlatformError: the base cannot be pulled, or a step fails; the hint has the last lines of its output.
        StorageError: the runtime cannot be packed.
    """
    with tempfile.TemporaryFile() as context:
        runtime = pack_runtime(state_home() / "runtime").path
        try:
            _write_context(context, runtime, options)
        except OSError as error:
            raise PlatformError(f"image {tag}: cannot create the build context: {error}") from error
        base = options.base or flavour.base
        build_base = options.build_base or base
        digests = {name: _resolve(client, name, options.platform, say) for name in {base, build_base}}
        bases = {"BASE": digests[base], "BUILD_BASE": digests[build_base]}
        with engine_errors(f"image {tag}"):
            output = client.build(
                fileobj=context,
                custom_context=True,
                tag=tag,
                buildargs={**flavour.build_args, **bases, **options.build_args},
                labels=_labels(flavour, base, digests[base]),
                network_mode=options.network,
                platform=options.platform,
                rm=True,
                forcerm=True,
                decode=True,
            )
            _follow(output, tag, say)
            return str(client.inspect_image(tag)["Id"])


def _follow(output: Iterable[dict[str, Any]], tag: str, say: Say) -> None:
    """Pass on the engine's output. Raises PlatformError if a step fails."""
    step, lines = "", list[str]()
    for record in output:
        for line in _COLOURS.sub("", record.get("stream", "")).splitlines():
            if line.lower().startswith("step "):  # Podman prints STEP
                step, lines = line, []
            if line.strip():
                lines.append(line)
                say(line)
        if "error" in record:
            tail = "\n  ".join(["Its last lines:", *lines[-LAST_LINES:]]) if lines else ""
            where = f"image {tag}: {step}" if step else f"image {tag}"
            raise PlatformError(f"{where}: {record['error'].strip()}", hint=tail)


def _resolve(client: APIClient, base: str, platform: str | None, say: Say) -> str:
    """``base`` with its digest, or its id if it is not from a registry. Pulls it if the engine does not have it."""
    from docker.errors import ImageNotFound

    with engine_errors(f"base image {base}"):
        try:
            image = client.inspect_image(base)
        except ImageNotFound:
            say(f"Pulling {base}")
            _pull(client, base, platform, say)
            image = client.inspect_image(base)
        return str((image.get("RepoDigests") or [image["Id"]])[0])


def _pull(client: APIClient, base: str, platform: str | None, say: Say) -> None:
    try:
        with engine_errors(f"base image {base}"):
            _follow(client.pull(base, platform=platform, stream=True, decode=True), base, say)
    except PlatformError as error:
        raise PlatformError(error.message, hint=pull_hint(base, error.message)) from error


def _labels(flavour: Flavour, base: str, digest: str) -> dict[str, str]:
    return {
        RECIPE_LABEL: flavour.recipe,
        "cloudtrain.flavour": flavour.name,
        "cloudtrain.version": __version__,
        "cloudtrain.framework": flavour.framework,
        "cloudtrain.framework-version": flavour.version,
        "org.opencontainers.image.title": flavour.name,
        "org.opencontainers.image.version": flavour.version,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.base.name": base,
        "org.opencontainers.image.base.digest": digest.rpartition("@")[2],
    }


def _write_context(file: IO[bytes], runtime: Path, options: BuildOptions) -> None:
    """Write the build context to ``file`` as a tar archive, and rewind it. Raises InvalidJob or OSError."""
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name in ("Dockerfile", "train", "steps"):
            tar.add(CONTAINERS / name, name, filter=_plain)
        tar.add(runtime, "cloudtrain.pyz", filter=_plain)
        _add_folder(tar, "extra")
        if options.ca_bundle:
            tar.add(_checked(options.ca_bundle, "--ca-bundle").resolve(), "extra/ca.pem", filter=_plain)
        if options.wheels:
            _add_folder(tar, "extra/wheels")
            for wheel in sorted(_checked(options.wheels, "--wheels").glob("*.whl")):
                tar.add(wheel.resolve(), f"extra/wheels/{wheel.name}", filter=_plain)
        if options.offline:
            tar.addfile(tarfile.TarInfo("extra/offline"), io.BytesIO())
    file.seek(0)


def _checked(path: Path, option: str) -> Path:
    with suppress(OSError):
        if path.exists():
            return path
    raise InvalidJob(f"{option}: there is no {path}")


def _add_folder(tar: tarfile.TarFile, name: str) -> None:
    folder = tarfile.TarInfo(name)
    folder.type, folder.mode = tarfile.DIRTYPE, 0o755
    tar.addfile(folder)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove owner and time, so that the same files give the same layers."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755  # scripts must be executable, even if an installation lost their mode
    return member
