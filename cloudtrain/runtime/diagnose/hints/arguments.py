"""Command lines that the script's parser refuses: argparse, click and absl."""

from __future__ import annotations

from cloudtrain.runtime.diagnose.hints.table import Hint

HINTS = (
    Hint(
        "train.py: error: unrecognized arguments: True",
        r"^\S+: error: unrecognized arguments: (?:True|true|False|false)$",
        "The script takes a flag without a value, but a hyperparameter always has one. Pass the flag after --: "
        "cloudtrain submit train.py -- --flag",
        exit_code=2,
    ),
    Hint(
        "train.py: error: unrecognized arguments: --model_dir s3://bucket/job/model",
        r"^\S+: error: unrecognized arguments: --model_dir \S+$",
        "TensorFlow jobs pass --model_dir to the script, as on SageMaker. Declare it: "
        'parser.add_argument("--model_dir"), or turn it off: model_dir=False.',
        exit_code=2,
    ),
    Hint(
        "train.py: error: unrecognized arguments: --epohcs 5",
        r"^\S+: error: unrecognized arguments: (?P<arguments>.+)$",
        "The script's parser does not declare {arguments}. Correct the name in the job (hyperparameters, or the "
        "arguments after --), or declare it with parser.add_argument.",
        exit_code=2,
    ),
    Hint(
        "train.py: error: argument --optimizer: invalid choice: 'adm' (choose from 'adam', 'sgd')",
        r"^\S+: error: argument (?P<argument>\S+): invalid choice: (?P<value>.+?) \((?:choose from|maybe)",
        "The job passes {value} as {argument}, which the script does not accept. The message above lists what it "
        "accepts: correct the hyperparameter, or the argument after --.",
        exit_code=2,
    ),
    Hint(
        "train.py: error: the following arguments are required: --data",
        r"^\S+: error: the following arguments are required: (?P<arguments>.+)$",
        "The job does not pass {arguments}. Give them after --: cloudtrain submit train.py -- --name value, or as "
        "hyperparameters.",
        exit_code=2,
    ),
    Hint(
        "train.py: error: argument --epochs: invalid int value: '0.1'",
        r"^\S+: error: argument (?P<argument>\S+): invalid (?P<type>\S+) value: (?P<value>.+)$",
        "The script expects {type} for {argument}, but the job passes {value}. Correct the hyperparameter, or the "
        "argument after --.",
        exit_code=2,
    ),
    Hint(
        "Error: No such option: --epohcs",
        r"^Error: No such option:? '?(?P<arguments>-[^\s'.]+)'?\.?(?: Did you mean .*| \(Possible .*)?$",
        "The script does not declare {arguments}. Correct the name in the job (hyperparameters, or the arguments "
        "after --), or declare it with click.option.",
        exit_code=2,
    ),
    Hint(
        "FATAL Flags parsing error: Unknown command line flag 'epohcs'",
        r"^FATAL Flags parsing error: Unknown command line flag '(?P<flag>[^']+)'",
        "The script does not define the flag {flag}. Correct the name in the job (hyperparameters, or the arguments "
        "after --), or define it with absl's flags.",
        exit_code=1,
    ),
)
