"""The class of a command that takes a script and, behind ``--``, the script's arguments."""

from __future__ import annotations

import os
import shlex

import click


class ScriptCommand(click.Command):
    """Shows for an unknown option how to pass it to the script."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            script = next(filter(os.path.isfile, given), "FILE")
            example = shlex.join([script, "--", *_with_value(error.option_name, given)])
            advice = (
                f"If it belongs to the script, put it behind -- with the script's other arguments: "
                f"{ctx.command_path} {example}"
            )
            message = f"{error.format_message()} {advice}"
            raise click.NoSuchOption(error.option_name, message, ctx=error.ctx) from None


def _with_value(option: str, arguments: list[str]) -> list[str]:
    """``option`` as it is in ``arguments``, and the argument after it unless that is an option too.

    click names only the first letter of ``-vv`` and ``-lr``.
    """
    is_letter = not option.startswith("--")
    for number, argument in enumerate(arguments):
        if argument.startswith(f"{option}="):
            return [argument]
        if argument == option or (is_letter and argument.startswith(option)):
            follows = arguments[number + 1 : number + 2]
            return [
                argument,
                *(text for text in follows if not (text.startswith("-") or os.path.isfile(text))),
            ]
    return [option]
