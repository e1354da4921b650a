"""``cloudtrain image``: build, push and list cloudtrain's own images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloudtrain.cli._options import echo_json, json_option

if TYPE_CHECKING:
    from docker import APIClient

    from cloudtrain.images import EcrImage, Flavour, LocalImage

BUILD_TIMEOUT = 3600.0
"""Seconds that a step of a build may take without a word: compilers say little."""


def _complete_flavour(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from cloudtrain.images import flavours

    return [flavour.name for flavour in flavours() if flavour.name.startswith(incomplete)]


flavour_argument = click.argument("flavour", shell_complete=_complete_flavour)
version_option = click.option("--framework-version", help="Of the framework.  [default: the pinned one]")
engine_option = click.option("--engine", help="docker, podman, or a URL.  [default: what answers]")
registry_option = click.option(
    "--registry", metavar="ADDRESS", help="Push there, as docker login left it.  [default: the account's ECR]"
)


@click.group("image")
def command() -> None:
    """cloudtrain's own images, for jobs in containers.

    \b
    cloudtrain image list
    cloudtrain image build pytorch-cpu
    cloudtrain image build pytorch-cuda --push
    """


@command.command()
@flavour_argument
@version_option
@click.option("--base", help="The image to build on: any with apt.  [default: that of the flavour]")
@click.option("--build-base", help="The same for the stage with the compilers, which is left behind.")
@click.option("--tag", help="The image's name.  [default: cloudtrain/FRAMEWORK:VERSION-...]")
@click.option("--push", "pushes", is_flag=True, help="Push it when it is built.")
@registry_option
@click.option(
    "--wheels",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder of wheels for pip to look in.",
)
@click.option("--offline", is_flag=True, help="Let pip look nowhere else than in --wheels.")
@click.option(
    "--ca-bundle",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Certificates for pip, behind a proxy.",
)
@click.option("--build-arg", "build_args", multiple=True, metavar="NAME=VALUE", help="Repeatable.")
@click.option("--network", help="The network of the build's containers: host, say.")
@click.option("--platform", metavar="OS/ARCH", help="linux/arm64, say.  [default: the engine's own]")
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
    """Build the image FLAVOUR, of which `cloudtrain image list` shows all."""
    from cloudtrain.images import BuildOptions, build_image, find_flavour

    wanted = find_flavour(flavour, framework_version)
    for item in build_args:
        if "=" not in item:
            raise click.BadParameter(f"{item!r} is not NAME=VALUE", param_hint="--build-arg")
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
    """Push the image FLAVOUR, which was built before.

    To ECR it logs in by itself, and makes the repository if there is none.
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
@click.option("--ecr", is_flag=True, help="Look into the account's ECR too.")
@engine_option
@json_option
def list_images(ecr: bool, engine: str | None, as_json: bool) -> None:
    """Show all images: those of this machine, and with --ecr those in the account's registry."""
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
        click.echo(f"\nWhat is built is not known: {why}", err=True)


def _connect(engine: str | None) -> APIClient:
    from cloudtrain.platforms.container import find_engine

    return find_engine(engine).connect(BUILD_TIMEOUT)


def _push(
    client: APIClient, flavour: Flavour, image: str, address: str | None, *, quiet: bool
) -> dict[str, str]:
    from cloudtrain.cli._progress import bytes_bar
    from cloudtrain.images import Registry, ecr_registry, make_ecr_repository, push_image

    if address:
        registry = Registry(address)
    else:
        from cloudtrain.aws.aws import Aws

        aws = Aws()
        registry = ecr_registry(aws)
        if make_ecr_repository(aws, flavour.repository) and not quiet:
            click.echo(f"Made the repository {flavour.repository} in ECR", err=True)
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
    from rich.console import Console
    from rich.filesize import decimal
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in (
        "FLAVOUR",
        "VERSION",
        "PYTHON",
        "BUILT",
        "SIZE",
        *(["ECR"] if remote is not None else []),
    ):
        table.add_column(heading, no_wrap=True)
    for flavour in wanted:
        built = local.get(flavour.name)
        row = [flavour.name, flavour.version, flavour.python]
        row += [built.name, decimal(built.size)] if built else ["", ""]
        if remote is not None:
            row.append(remote[flavour.name].uri if flavour.name in remote else "")
        table.add_row(*row)
    console = Console()
    # names are to be copied whole, into a pipe as onto a terminal
    (console if console.is_terminal else Console(width=200)).print(table)
