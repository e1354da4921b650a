"""``cloudtrain image``: builds, pushes and lists cloudtrain's images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloudtrain.cli._options import json_option
from cloudtrain.cli._output import echo_json, print_table

if TYPE_CHECKING:
    from docker import APIClient

    from cloudtrain.images import EcrImage, Flavour, LocalImage

BUILD_TIMEOUT = 3600.0
"""Seconds that a build step may take without output. Compilers print little."""


def _complete_flavour(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from cloudtrain.images import flavours

    return [flavour.name for flavour in flavours() if flavour.name.startswith(incomplete)]


flavour_argument = click.argument("flavour", shell_complete=_complete_flavour)
version_option = click.option(
    "--framework-version", metavar="VERSION", help="Version of the framework.  [default: the pinned version]"
)
engine_option = click.option(
    "--engine",
    metavar="ENGINE",
    help="Container engine: docker, podman or a URL.  [default: the first that responds]",
)
registry_option = click.option(
    "--registry",
    metavar="ADDRESS",
    help="Registry to push to, with the credentials of docker login.  [default: the account's ECR]",
)


@click.group("image")
def command() -> None:
    """Build, push and list cloudtrain's images, for jobs in containers.

    \b
    Examples:
      cloudtrain image list
      cloudtrain image build pytorch-cpu
      cloudtrain image build pytorch-cuda --push
    """


@command.command()
@flavour_argument
@version_option
@click.option("--base", metavar="IMAGE", help="Base image; it must have apt.  [default: the flavour's base]")
@click.option(
    "--build-base",
    metavar="IMAGE",
    help="Base image of the stage that installs and compiles.  [default: the base]",
)
@click.option("--tag", metavar="NAME", help="Name of the image.  [default: cloudtrain/FRAMEWORK:VERSION-...]")
@click.option("--push", "pushes", is_flag=True, help="Push the image after the build.")
@registry_option
@click.option(
    "--wheels",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Folder of wheels that pip may install from.",
)
@click.option("--offline", is_flag=True, help="Let pip install from --wheels only.")
@click.option(
    "--ca-bundle",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="CA certificates for pip, for use behind a proxy.",
)
@click.option(
    "--build-arg",
    "build_args",
    multiple=True,
    metavar="NAME=VALUE",
    help="Build argument of the Dockerfile. Repeatable.",
)
@click.option("--network", metavar="NAME", help="Network of the build's containers, for example host.")
@click.option(
    "--platform",
    metavar="OS/ARCH",
    help="Platform of the image, for example linux/arm64.  [default: the engine's]",
)
@engine_option
@json_option
def build(
    flavour: str,
    framework_version: str | None,
    tag: str | None,
    pushes: bool,
    registry: str | None,
    build_args: tuple[str, ...],
    engine: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Build the image FLAVOUR. See cloudtrain image list for the flavours."""
    from cloudtrain.images import BuildOptions, build_image, find_flavour

    wanted = find_flavour(flavour, framework_version)
    for item in build_args:
        if "=" not in item:
            raise click.BadParameter(f"{item!r} does not have the form NAME=VALUE", param_hint="--build-arg")
    arguments = dict(item.split("=", 1) for item in build_args)
    client = _connect(engine)
    name = tag or wanted.image
    say = (lambda line: None) if as_json else lambda line: click.echo(line, err=True)
    image = build_image(client, wanted, name, BuildOptions(**options, build_args=arguments), say)
    built = {"flavour": wanted.name, "image": name, "id": image}
    if pushes:
        built.update(_push(client, wanted, image, registry, quiet=as_json))
    if as_json:
        echo_json(built)
    else:
        click.echo(f"Pushed {built['uri']}@{built['digest']}" if pushes else f"Built {name}")


@command.command()
@flavour_argument
@version_option
@registry_option
@engine_option
@json_option
def push(
    flavour: str, framework_version: str | None, registry: str | None, engine: str | None, as_json: bool
) -> None:
    """Push the image FLAVOUR, which must be built.

    For ECR, the command logs in with your AWS credentials, and creates the repository if it does not exist.
    """
    from cloudtrain.errors import PlatformError
    from cloudtrain.images import find_flavour, find_local

    wanted = find_flavour(flavour, framework_version)
    client = _connect(engine)
    found = find_local(client, wanted)
    if found is None:
        raise PlatformError(
            f"the image {wanted.image} is not on this machine",
            hint=f"Build it: {wanted.build_command} --push",
        )
    pushed = _push(client, wanted, found.id, registry, quiet=as_json)
    if as_json:
        echo_json({"flavour": wanted.name, **pushed})
    else:
        click.echo(f"Pushed {pushed['uri']}@{pushed['digest']}")


@command.command("list")
@click.option("--ecr", is_flag=True, help="Also show which images the account's ECR has.")
@engine_option
@json_option
def list_images(ecr: bool, engine: str | None, as_json: bool) -> None:
    """List the flavours, and which of them are built on this machine."""
    from cloudtrain.errors import PlatformError
    from cloudtrain.images import find_local, flavours

    local: dict[str, LocalImage | None] = {}
    why = ""
    try:
        client = _connect(engine)
        local = {flavour.name: find_local(client, flavour) for flavour in flavours()}
    except PlatformError as error:
        why = str(error)
    remote = _find_in_ecr(flavours()) if ecr else {}
    if as_json:
        echo_json([_row(item, local.get(item.name), remote.get(item.name)) for item in flavours()])
        return
    _show(flavours(), local, remote if ecr else None)
    if why:
        click.echo(f"\nCannot list the images that are built: {why}", err=True)


def _connect(engine: str | None) -> APIClient:
    from cloudtrain.platforms.container import find_engine

    return find_engine(engine).connect(BUILD_TIMEOUT)


def _push(
    client: APIClient, flavour: Flavour, image: str, address: str | None, *, quiet: bool
) -> dict[str, str]:
    from cloudtrain.cli._output import bytes_bar
    from cloudtrain.images import Registry, ecr_registry, make_ecr_repository, push_image

    if address:
        registry = Registry(address)
    else:
        from cloudtrain.aws.aws import Aws

        aws = Aws()
        registry = ecr_registry(aws)
        if make_ecr_repository(aws, flavour.repository) and not quiet:
            click.echo(f"Created the repository {flavour.repository} in ECR", err=True)
    with bytes_bar("push", quiet=quiet) as add:
        uri, digest = push_image(client, image, registry, flavour.image, add)
    return {"uri": uri, "digest": digest}


def _find_in_ecr(wanted: list[Flavour]) -> dict[str, EcrImage]:
    from cloudtrain.aws.aws import Aws
    from cloudtrain.images import ecr_images

    aws = Aws()
    found = {
        repository: ecr_images(aws, repository)
        for repository in dict.fromkeys(flavour.repository for flavour in wanted)
    }
    tagged = {flavour.name: found[flavour.repository].get(flavour.tag) for flavour in wanted}
    return {name: image for name, image in tagged.items() if image}


def _row(flavour: Flavour, local: LocalImage | None, remote: EcrImage | None) -> dict[str, Any]:
    return {
        "flavour": flavour.name,
        "version": flavour.version,
        "python": flavour.python,
        "image": flavour.image,
        "local": {"name": local.name, "id": local.id, "size": local.size} if local else None,
        "ecr": {"uri": remote.uri, "digest": remote.digest} if remote else None,
    }


def _show(
    wanted: list[Flavour], local: dict[str, LocalImage | None], remote: dict[str, EcrImage] | None
) -> None:
    from rich.filesize import decimal

    headings = ["FLAVOUR", "VERSION", "PYTHON", "BUILT", "SIZE"]
    rows = []
    for flavour in wanted:
        built = local.get(flavour.name)
        row = [flavour.name, flavour.version, flavour.python]
        row += [built.name, decimal(built.size)] if built else ["", ""]
        if remote is not None:
            row.append(remote[flavour.name].uri if flavour.name in remote else "")
        rows.append(row)
    print_table([*headings, "ECR"] if remote is not None else headings, rows)
