"""``cloudtrain completion``."""

from __future__ import annotations

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script that completes commands, options, and names of jobs and platforms in SHELL.

    \b
    Install it:
      bash  echo 'eval "$(cloudtrain completion bash)"' >> ~/.bashrc
      zsh   echo 'autoload -Uz compinit; compinit; eval "$(cloudtrain completion zsh)"' >> ~/.zshrc
      fish  cloudtrain completion fish > ~/.config/fish/completions/cloudtrain.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, "click supports every choice of SHELL"
    root = context.find_root().command
    click.echo(kind(root, {}, "cloudtrain", "_CLOUDTRAIN_COMPLETE").source())
