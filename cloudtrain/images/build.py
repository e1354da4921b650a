"""Builds an image: the context out of ``containers/`` and the runtime, the base by its digest, the labels."""

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
from cloudtrain.engine.client import engine_errors
from cloudtrain.engine.pulling import pull_hint
from cloudtrain.errors import InvalidJob, PlatformError
from cloudtrain.images.catalogue import CONTAINERS, RECIPE_LABEL, Flavour
from cloudtrain.packaging import pack_runtime
from cloudtrain.storage import state_home

if TYPE_CHECKING:
    from docker import APIClient

Say = Callable[[str], None]
"""Called with each line that the engine prints."""

_COLOURS = re.compile(r"\x1b\[[\d;]*m")

LAST_LINES = 15
"""How many lines of a failed step its error shows."""


@dataclass(frozen=True)
class BuildOptions:
    """What a build may take from the machine that it is made on.

    ``base`` and ``build_base`` go before those of the flavour. ``wheels`` is a folder of wheels for pip, on top of
    the indexes; ``offline`` leaves only these. ``ca_bundle`` is a file of certificates for pip, where a proxy has
    one of its own. ``network`` is that of the build's containers: ``host``, say.
    """

    base: str | None = None
    build_base: str | None = None
    wheels: Path | None = None
    offline: bool = False
    ca_bundle: Path | None = None
    network: str | None = None
    platform: str | None = None
    """``linux/arm64``, say: as the engine's own if None."""
    build_args: Mapping[str, str] = field(default_factory=dict)


def build_image(
    client: APIClient, flavour: Flavour, tag: str, options: BuildOptions = BuildOptions(), say: Say = print
) -> str:
    """Build ``flavour`` as ``tag``; returns the image's id. A build that fails leaves no container and no tag.

    Raises:
        InvalidJob: an option names a file that is not there.
        PlatformError: the base cannot be pulled, or a step fails; the hint has the last lines that it printed.
        StorageError: the runtime cannot be packed.
    """
    with tempfile.TemporaryFile() as context:
        runtime = pack_runtime(state_home() / "runtime").path
        try:
            _write_context(context, runtime, options)
        except OSError as error:
            raise PlatformError(f"image {tag}: what it is made of cannot be gathered: {error}") from error
        base = options.base or flavour.base
        builds_apart = flavour.build_base if flavour.build_base != flavour.base else None
        build_base = options.build_base or builds_apart or base
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
    """Hand on what the engine prints; raise PlatformError for the step that it fails in."""
    step, lines = "", list[str]()
    for record in output:
        for line in _COLOURS.sub("", record.get("stream", "")).splitlines():
            if line.lower().startswith("step "):  # Podman shouts
                step, lines = line, []
            if line.strip():
                lines.append(line)
                say(line)
        if "error" in record:
            said = "\n  ".join(["Its last lines:", *lines[-LAST_LINES:]]) if lines else ""
            where = f"image {tag}: {step}" if step else f"image {tag}"
            raise PlatformError(f"{where}: {record['error'].strip()}", hint=said)


def _resolve(client: APIClient, base: str, platform: str | None, say: Say) -> str:
    """``base`` by its digest, or by its id where no registry has it; it is pulled if it is not here."""
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
    """The context as a tar, written to ``file``, which stands at its begin then. Raises InvalidJob or OSError."""
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
    """Nobody's, and of no time: the same files give the same layers."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755  # scripts have to be executable, also where an installation has lost that
    return member
