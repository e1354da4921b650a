"""The arguments that follow the hyperparameters on the script's command line: a list of strings, passed unchanged.

A platform passes only hyperparameters to a host, so the list is encoded in those: its JSON text, cut into pieces that
SageMaker accepts as values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from cloudtrain._system.patterns import pattern
from cloudtrain.contract.documents import is_program_text, parse_json
from cloudtrain.contract.paths import Paths

ARGUMENTS = "sagemaker_arguments"
"""The hyperparameter with the first piece; the next are ``sagemaker_arguments_2``, ``sagemaker_arguments_3``, ..."""

LONGEST_PIECE = 2500
"""In characters: the longest value of a hyperparameter that CreateTrainingJob accepts (``HyperParameterValue``)."""

_PLACEHOLDER = pattern(
    r"(?P<open>\{+)(?P<name>channel\.(?P<channel>[A-Za-z0-9.\-_]+)|model_dir|output_data_dir|checkpoint_dir)(?P<close>\}+)"
)


def encode_arguments(arguments: Sequence[str]) -> dict[str, str]:
    """The hyperparameters that carry ``arguments``; none if there are none.

    The text is ASCII: SageMaker counts characters, and bytes that are not UTF-8 are preserved.

    >>> encode_arguments(["--epochs", "5", ""])
    {'sagemaker_arguments': '["--epochs", "5", ""]'}
    """
    if not arguments:
        return {}
    text = json.dumps(list(arguments))
    starts = range(0, len(text), LONGEST_PIECE)
    return {name: text[start : start + LONGEST_PIECE] for name, start in zip(_names(), starts)}


def decode_arguments(encoded: Mapping[str, str]) -> tuple[str, ...]:
    """The inverse of `encode_arguments`; ``encoded`` may have other hyperparameters.

    Raises ValueError if a piece is missing or changed.
    """
    pieces = []
    for name in _names():
        if name not in encoded:
            break
        pieces.append(encoded[name])
    if not pieces:
        return ()
    try:
        arguments = parse_json("".join(pieces))
    except ValueError:
        arguments = None
    if not isinstance(arguments, list) or not all(map(is_program_text, arguments)):
        raise ValueError(f"the hyperparameter {ARGUMENTS} is damaged")
    return tuple(arguments)


def is_argument_piece(name: str) -> bool:
    """Whether the hyperparameter ``name`` carries arguments."""
    return name == ARGUMENTS or name.startswith(f"{ARGUMENTS}_")


def _names() -> Iterator[str]:
    yield ARGUMENTS
    number = 2
    while True:
        yield f"{ARGUMENTS}_{number}"
        number += 1


def expand(arguments: Sequence[str], paths: Paths) -> list[str]:
    """``arguments`` with ``{channel.NAME}``, ``{model_dir}`` and so on replaced by the host's folders.

    ``{{channel.NAME}}`` becomes ``{channel.NAME}``: of several braces, one on each side is removed. All other braces
    are unchanged.

    >>> expand(["--data={channel.train}", "{{model_dir}}", '{"lr": 1}'], Paths.from_environ({}))
    ['--data=/opt/ml/input/data/train', '{model_dir}', '{"lr": 1}']
    """

    def replace(match: re.Match[str]) -> str:
        opened, closed = match["open"], match["close"]
        if min(len(opened), len(closed)) > 1:
            return f"{opened[1:]}{match['name']}{closed[1:]}"
        return f"{opened[1:]}{_folder(match, paths)}{closed[1:]}"

    return [_PLACEHOLDER.sub(replace, argument) for argument in arguments]


def placeholder_channels(argument: str) -> list[str]:
    """The names of the channels whose folders `expand` would put into ``argument``."""
    return [
        match["channel"]
        for match in _PLACEHOLDER.finditer(argument)
        if match["channel"] and min(len(match["open"]), len(match["close"])) == 1
    ]


def _folder(match: re.Match[str], paths: Paths) -> str:
    if match["channel"]:
        return str(paths.channel(match["channel"]))
    folders = {
        "model_dir": paths.model,
        "output_data_dir": paths.output_data,
        "checkpoint_dir": paths.checkpoints,
    }
    return str(folders[match["name"]])
