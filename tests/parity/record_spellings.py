"""Records how SageMaker's training toolkit passes hyperparameters to a script, for tests without the toolkit.

    python record_spellings.py    # writes ../data/toolkit_spellings.json

The interpreter needs ``sagemaker`` (version 2), ``sagemaker-training`` and NumPy. Each value goes the whole way: the
SDK's request, the file ``hyperparameters.json``, the toolkit's command line and variables.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy

VALUES: dict[str, tuple[str, str | None]] = {
    "amp": ("True", "true"),
    "cold": ("False", "false"),
    "none": ("None", "null"),
    "epochs": ("5", "5"),
    "negative": ("-3", "-3"),
    "zero": ("0", "0"),
    "seed": ("2**53 + 1", "9007199254740993"),
    "wide": ("2**70", "1180591620717411303424"),
    "lr": ("1e-5", "1e-5"),
    "decay": ("0.1", "0.1"),
    "whole": ("1.0", "1.0"),
    "huge": ("1e22", "1e22"),
    "third": ("1 / 3", "0.3333333333333333"),
    "minus_zero": ("-0.0", "-0.0"),
    "text": ("'adam'", "adam"),
    "empty": ("''", "''"),
    "blank": ("' a  b '", "' a  b '"),
    "version": ("'1.10'", "'1.10'"),
    "true_text": ("'True'", "'True'"),
    "null_text": ("'null'", "'null'"),
    "list_text": ("'[1, 2]'", "'[1, 2]'"),
    "json_text": ("""'{"a": 1}'""", """'{"a": 1}'"""),
    "quotes": ("""'it\\'s "so"'""", '''"it's \\"so\\""'''),
    "shell": ("'$HOME `ls` ; rm -rf *'", "'$HOME `ls` ; rm -rf *'"),
    "lines": ("'a\\nb'", '"a\\nb"'),
    "dash": ("'-1'", "'-1'"),
    "unicode": ("'Zürich 東京 🎉'", "Zürich 東京 🎉"),
    "list": ("[1, 2.5, 'a', True, None]", "[1, 2.5, a, true, null]"),
    "no_items": ("[]", "[]"),
    "lists": ("[[1, 2], ['a', ['b']]]", "[[1, 2], [a, [b]]]"),
    "list_unicode": ("['é', '\\'', '\"']", """["é", "'", "\\""]"""),
    "dict": ("{'b': 2, 'a': 1}", "{b: 2, a: 1}"),
    "no_keys": ("{}", "{}"),
    "dicts": (
        "{'o': {'name': 'sgd', 'nesterov': True}, 'l': [1, None]}",
        "{o: {name: sgd, nesterov: true}, l: [1, null]}",
    ),
    "dict_values": (
        "{'f': 1e-5, 'n': None, 't': True, 's': 'x y'}",
        "{f: 1e-5, n: null, t: true, s: x y}",
    ),
    "list_of_dicts": ("[{'a': 1}, {'b': [True]}]", "[{a: 1}, {b: [true]}]"),
    "tuple": ("(1, 'a', (2, 3))", None),
    "number_keys": ("{1: 'a', 2.5: 'b'}", None),
    "mixed_keys": ("{10: 'a', 'x': 'b', None: 'c', True: 'd'}", None),
    "numpy_double": ("numpy.float64(0.1)", None),
    "k": ("3", "3"),
    "Q": ("'x'", "x"),
    "é": ("1", "1"),
    "under_score": ("1", "1"),
    "_leading": ("1", "1"),
    "with-dash": ("1", "1"),
    "with.dot": ("1", "1"),
    "UPPER": ("1", "1"),
    "n1": ("1", "1"),
}
"""By name of a hyperparameter: its value in Python, and in YAML if it can be written there."""

RAW = (
    *("5", "1e5", "0.10", "1.10", "007", "-0", "True", "true", "None", "null", "NaN", "-Infinity", "1e999"),
    *("adam", '"adam"', "'adam'", "", " ", " 5 ", "[1, 2", "[1, 'a']", '[1, "a"]', '{"b": 2, "a": [1, null]}' ),
    *("{a: 1}", '"\\u00e9"', "é", "1180591620717411303424", '"1.10"', "\t"),
)  # fmt: skip
"""Texts that a request of another program, such as the console, may have."""


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    for name in ("input/config", "input/data", "model", "code", "output/data", "output/intermediate"):
        (folder / name).mkdir(parents=True)
    os.environ["SAGEMAKER_BASE_DIR"] = str(folder)
    os.environ["AWS_DEFAULT_REGION"] = "us-east-1"
    config = folder / "input/config"
    (config / "inputdataconfig.json").write_text("{}")
    (config / "resourceconfig.json").write_text(json.dumps({"current_host": "algo-1", "hosts": ["algo-1"]}))
    from sagemaker.estimator import EstimatorBase

    values = {name: eval(python, {"numpy": numpy}) for name, (python, _) in VALUES.items()}
    sent = EstimatorBase._json_encode_hyperparameters(values)
    raw = {f"raw{number:02}": text for number, text in enumerate(RAW)}
    found = {
        "versions": {name: importlib.metadata.version(name) for name in ("sagemaker", "sagemaker-training")},
        "yaml": "\n".join(f"{name}: {yaml}" for name, (_, yaml) in VALUES.items() if yaml is not None),
        "python": {name: python for name, (python, _) in VALUES.items()},
        "sent": sent,
        "received": _received(config, sent),
        "raw": raw,
        "raw_received": _received(config, raw),
    }
    target = Path(__file__).parents[1] / "data" / "toolkit_spellings.json"
    target.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _received(config: Path, sent: dict[str, str]) -> dict[str, Any]:
    """The command line that the toolkit passes to a script, and the variables that repeat it."""
    from sagemaker_training.environment import Environment

    (config / "hyperparameters.json").write_text(json.dumps(sent))
    environment = Environment()
    variables = environment.to_env_vars()
    kept = {
        name: text for name, text in variables.items() if name.startswith("SM_HP") or name == "SM_USER_ARGS"
    }
    return {"arguments": environment.to_cmd_args(), "variables": kept}


if __name__ == "__main__":
    main()
