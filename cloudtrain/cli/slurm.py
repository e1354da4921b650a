"""``cloudtrain slurm``."""

from __future__ import annotations

import click


@click.group("slurm")
def command() -> None:
    """Log in to clusters with Slurm.

    \b
    Examples:
      cloudtrain slurm login kraken     answer passwords and codes once
      cloudtrain slurm logout kraken
    """


@command.command()
@click.argument("name")
@click.option(
    "--keep", default="8h", show_default=True, metavar="TIME", help="How long it stays open without use."
)
def login(name: str, keep: str) -> None:
    """Log in to NAME, and keep the login open for later commands.

    NAME is a profile of your config file, or a Host of your ~/.ssh/config. ssh prompts for everything that it needs:
    passwords, codes, and whether a new host key is right. Needed only for clusters that your keys alone do not open.
    """
    from cloudtrain.platforms.batch.control import check_time, is_logged_in, lasts, log_in
    from cloudtrain.platforms.slurm.profile import login_of

    check_time(keep)
    alias = login_of(name)
    if is_logged_in(alias):
        click.echo(f"There is a login to {name} already. To replace it: cloudtrain slurm logout {name}")
        return
    node = log_in(alias, keep)
    click.echo(f"Logged in to {name}: {node} answers. {lasts(keep)}")


@command.command()
@click.argument("name")
def logout(name: str) -> None:
    """End the login to NAME. Jobs continue."""
    from cloudtrain.platforms.batch.control import log_out
    from cloudtrain.platforms.slurm.profile import login_of

    if log_out(login_of(name)):
        click.echo(f"Logged out of {name}.")
    else:
        click.echo(f"There is no login to {name}.")
