"""``cloudtrain completion``."""

from __future__ import annotations

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the code that completes cloudtrain's commands and job names in SHELL.

    \b
    bash, zsh   echo 'eval "$(cloudtrain completion bash)"' >> ~/.bashrc
    fish        cloudtrain completion fish > ~/.config/fish/completions/cloudtrain.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, "the choices are click's own"
    root = context.find_root().command
    click.echo(kind(root, {}, "cloudtrain", "_CLOUDTRAIN_COMPLETE").source())
