"""Hints for failures in the script's own code: its arguments, channels, files, programs and modules."""

from __future__ import annotations

import re

from cloudtrain.contract import FailureClass
from cloudtrain.runtime.diagnose.hints.table import Hint

_VARIABLE = r"^KeyError: '(?P<channel_variable>SM_CHANNEL_[A-Z0-9_]+)'(?m:$)"

CHANNELS = (
    Hint(
        "KeyError: 'SM_CHANNEL_TRAIN'",
        _VARIABLE,
        "The script reads {absent_channel}, but the job has no such channel. Its channels: {channels}. Name the "
        "channel after the variable: SM_CHANNEL_TRAIN is the channel train (--input train=URI, or inputs).",
        failure_class=FailureClass.MISSING_DATA,
    ),
    Hint(
        "KeyError: 'SM_CHANNEL_TRAIN'",
        _VARIABLE,
        "The script reads {absent_channel}, but the job has no such channel. Name the channel after the variable: "
        "SM_CHANNEL_TRAIN is the channel train (--input train=URI, or inputs).",
        failure_class=FailureClass.MISSING_DATA,
    ),
    Hint(
        "KeyError: 'SM_HP_EPOCHS'",
        r"^KeyError: '(?P<variable>SM_HP_[A-Z0-9_]+)'(?m:$)",
        "The script reads {variable}, but the job has no such hyperparameter. SM_HP_EPOCHS is the hyperparameter "
        "epochs: set it, or read it with os.environ.get.",
    ),
)
"""Channels and variables of the contract that the script expects but the job does not have."""

ARGUMENTS = (
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
"""Command lines that the script's parser (argparse, click or absl) refuses."""

_RELATIVE = (
    "{path} is relative to the working folder: at the start, the job's copy of the source; with cloudtrain run, the "
    "folder of the shell, or --wdir. Pack a file that the script reads: --source-dir FOLDER (source_dir in Python), "
    "and see that no ignore file excludes it. Create the folder of a file that it writes. Large data belongs in a "
    "channel."
)

FILES = (
    Hint(
        "OSError: [Errno 24] Too many open files: 'data.bin'",
        r"^OSError: \[Errno 24\] Too many open files",
        "The process has reached its limit of open files (ulimit -n). Close files after use, use fewer workers, or "
        "raise the limit at the start of the script with resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard)).",
    ),
    Hint(
        "RuntimeError: Too many open files. Communication with the workers is no longer possible. ...",
        r"^RuntimeError: (?:Too many open files\. Communication with the workers|received 0 items of ancdata)",
        "Every tensor from a DataLoader's worker takes a file descriptor. Call "
        "torch.multiprocessing.set_sharing_strategy('file_system') at the start of the script, or use fewer workers.",
    ),
    Hint(
        "FileNotFoundError: [Errno 2] No such file or directory: 'nvcc'",
        r"^FileNotFoundError: \[Errno 2\] No such file or directory: '(?P<program>[^'/]+)'",
        "The script starts a program, and the job has no {program}: no program on its PATH, and no folder if it is "
        "passed as cwd. Use an image that has the program.",
        traceback=r"in _execute_child",
        failure_class=FailureClass.USER_ERROR,
    ),
    Hint(
        "FileNotFoundError: [Errno 2] No such file or directory: '/opt/ml/input/data/train/x.csv'",
        r"^FileNotFoundError: \[Errno 2\] No such file or directory: '/opt/ml/input/data/(?P<channel>[^/']+)",
        "Is {channel} a channel of the job, with this file? Its channels: {channels}. Read the folder of a channel "
        "from its variable: SM_CHANNEL_TRAIN for the channel train.",
    ),
    Hint(
        "FileNotFoundError: [Errno 2] No such file or directory: '/opt/ml/code/config.yaml'",
        r"^FileNotFoundError: \[Errno 2\] No such file or directory: '(?P<path>/[^']*)'",
        "{below_source} is not in the job's source. Pack a file that the script reads: --source-dir FOLDER (source_dir "
        "in Python), and see that no ignore file excludes it. Create the folder of a file that it writes.",
    ),
    Hint(
        "FileNotFoundError: [Errno 2] No such file or directory: '/opt/ml/data/train.csv'",
        r"^FileNotFoundError: \[Errno 2\] No such file or directory: '(?P<path>/[^']*)'",
        "The script looks for {next_to_source} next to the folder of the job's source. Pack "
        "the folder that has both: --source-dir FOLDER (source_dir in Python).",
    ),
    Hint(
        "XGBoostError: [12:00:00] /workspace/dmlc-core/src/io/local_filesys.cc:103: LocalFileSystem.ListDirectory "
        "../data error: No such file or directory",
        r"^XGBoostError: .*(?:LocalFileSystem\.\w+|matches the URI pattern|Opening) (?P<file>\S+)"
        r"(?= (?:error|failed): No such file|\s|$)",
        "XGBoost does not find {file}. A job has a copy of its source, and no other files of yours. Pack the folder "
        "that has both the script and the data: --source-dir FOLDER (source_dir in Python), or read a channel.",
        failure_class=FailureClass.MISSING_DATA,
    ),
    Hint(
        "python: can't open file '/opt/ml/code/train.py': [Errno 2] No such file or directory",
        r"^\S*python\S*: can't open file '(?P<path>[^']+)': \[Errno 2\]",
        "{below_source} is not in the job's source. Pack the folder of the scripts: --source-dir FOLDER (source_dir in "
        "Python).",
        exit_code=2,
        failure_class=FailureClass.MISSING_DATA,
    ),
    Hint(
        "FileNotFoundError: [Errno 2] No such file or directory: 'config.yaml'",
        r"^FileNotFoundError: \[Errno 2\] No such file or directory: '(?P<path>[^'/][^']*)'",
        _RELATIVE,
    ),
    Hint(
        "FileNotFoundError: ../data/cora.content not found. (NumPy)",
        r"^FileNotFoundError: (?P<path>(?!/|\w+://)\S+) not found\.$",
        _RELATIVE,
        traceback=r"_datasource",
    ),
)
"""Files that do not exist, and too many open files."""

_ABOVE = (
    "A process that the script started has failed. Its own error is in the output above the traceback: see "
    "cloudtrain logs JOB. If the script captures that output (capture_output), let it print it."
)

PROGRAMS = (
    Hint(
        "CalledProcessError: Command '['python', 'prepare.py']' returned non-zero exit status 1.",
        r"^(?:\w+\.)*CalledProcessError: Command (?s:.*)(?:returned non-zero exit status|died with)",
        _ABOVE,
    ),
    Hint(
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: (torchrun in a shell script)",
        r"^(?:\w+\.)*ChildFailedError(?m::|$)",
        _ABOVE,
    ),
    Hint(
        "NameError: name 'display' is not defined",
        r"^NameError: name '(?P<name>display|get_ipython)' is not defined",
        "{name} exists only in a notebook. In a script, print the value, or save the figure to a file.",
    ),
    Hint(
        "EOFError: EOF when reading a line",
        r"^EOFError: EOF when reading a line",
        "The script calls input(), and in a job, no one answers. Take the answer from an argument or from the "
        "environment. cloudtrain run passes its standard input to rank 0.",
    ),
    Hint(
        "ValueError: not enough values to unpack (expected 2, got 0)  (of stty size)",
        r"^(?:ValueError: not enough values to unpack|OSError: \[Errno 25\] Inappropriate ioctl for device)",
        "The script asks for the size of the terminal, and a rank has none. Use shutil.get_terminal_size(), which then "
        "returns 80 columns.",
        traceback=r"stty size|os\.get_terminal_size\(|fcntl\.ioctl\(.*TIOCGWINSZ",
    ),
)
"""Processes that the script starts, and names that exist only in a notebook."""

_MISSING = r"^ModuleNotFoundError: No module named '(?P<module>[\w.]+)'(?m:$)"
_SUBMODULE = r"^ModuleNotFoundError: No module named '(?P<module>\w+\.[\w.]+)'(?m:$)"

PUBLISHED = {
    "Crypto": "pycryptodome",
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "git": "GitPython",
    "google.protobuf": "protobuf",
    "hydra": "hydra-core",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
}
"""Well-known modules whose distribution has a different name."""

FRAMEWORKS = (
    "accelerate", "jax", "keras", "lightning", "matplotlib", "mlflow", "mxnet", "numpy", "pandas", "scipy",
    "tensorflow", "torch", "torchvision", "tqdm", "transformers", "wandb", "xgboost",
)  # fmt: skip
"""Well-known modules whose distribution has the same name, a name that no project gives to its own module."""

IMPORTS = (
    Hint(
        "ImportError: attempted relative import with no known parent package",
        r"^ImportError: attempted relative import (?:with no known parent package|beyond top-level package)",
        "A script has no parent package. Write from helpers import x instead of from .helpers import x, or make the "
        "folder of the package the source_dir, with a pyproject.toml, and name the module as the entry point: "
        "package.train. With cloudtrain run: python -m package.train.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'smdistributed'",
        r"^ModuleNotFoundError: No module named 'smdistributed[.']",
        "smdistributed exists only in AWS's images for SageMaker. Elsewhere, use DistributedDataParallel with the "
        "backend nccl, or cloudtrain.distributed.torch.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'sagemaker_containers'",
        r"^ModuleNotFoundError: No module named 'sagemaker_(?:containers|training)[.']",
        "The library is part of AWS's images. It reads the environment of the job, which you can do yourself: "
        'json.loads(os.environ["SM_HOSTS"]), os.environ["SM_CURRENT_HOST"], os.environ["SM_CHANNEL_TRAIN"].',
    ),
    Hint(
        "ModuleNotFoundError: No module named 'horovod.run'",
        r"^ModuleNotFoundError: No module named 'horovod\.(?:run|runner)\b"
        r"|^ImportError: cannot import name 'run' from 'horovod'"
        r"|^AttributeError: module 'horovod' has no attribute 'run'",
        "horovod.run starts ranks, which cloudtrain does itself: call the function directly, and submit with --horovod "
        "and --processes-per-host.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'horovod.spark'",
        r"^ModuleNotFoundError: No module named 'horovod\.(?P<part>spark|ray)\b",
        "horovod.{part} needs the real Horovod and a cluster of {part}, which cloudtrain does not start. Use "
        "horovod.torch, horovod.tensorflow or horovod.keras: cloudtrain starts the ranks.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'horovod.data'",
        r"^ModuleNotFoundError: No module named '(?P<module>horovod\.[\w.]+)'",
        "The horovod of this job does not have {module}. If the script needs it, use an image that has the real "
        "Horovod.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'helpers' (in the folder src of the source)",
        _MISSING,
        "The source has {top} in the folder {found_in}, which Python does not search. Put the entry point there, or "
        "set PYTHONPATH={found_in} in the job's environment.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'helpers.text' (the source has helpers, without text)",
        _SUBMODULE,
        "The source has {own_package}, but not {module}. Check the name, and that no .gitignore or .cloudtrainignore "
        "excludes the file.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'helpers.text' (the source has helpers/text.py)",
        _SUBMODULE,
        "The source has {own_file}, but Python imports another {top}: an installed package, or another module of that "
        "name. Rename yours, or add an __init__.py to its folder.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'torch.nn'; 'torch' is not a package",
        r"^ModuleNotFoundError: No module named '[\w.]+'; '(?P<module>\w+)' is not a package",
        "The source has a file {module}.py (in the folder {found_in}), which hides the package {module}. Rename the "
        "file.",
    ),
    *(
        Hint(
            f"ModuleNotFoundError: No module named '{module}'",
            rf"^ModuleNotFoundError: No module named '{re.escape(module)}'(?m:$)",
            f"Add {distribution} to the requirements.txt next to the script.",
        )
        for module, distribution in PUBLISHED.items()
    ),
    Hint(
        "ModuleNotFoundError: No module named 'numpy'",
        rf"^ModuleNotFoundError: No module named '(?P<module>{'|'.join(FRAMEWORKS)})'(?m:$)",
        "Add {module} to the requirements.txt next to the script: the job installs what its Python lacks. Or use an "
        "interpreter or image that has it. With cloudtrain run: install it.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'transformers.utils.old' (the source has no module transformers)",
        _SUBMODULE,
        "The {foreign} of this job has no {module}: another release of it may have, or a package that adds to it. See "
        "the documentation of {module} for what to put into requirements.txt.",
    ),
    Hint(
        "ImportError: cannot import name 'x' from 'scipy' (/usr/lib/python3/site-packages/scipy/__init__.py)",
        r"^ImportError: cannot import name '(?P<name>\w+)' from '(?P<module>\w+)[\w.]*' "
        r"\(.*/(?:site|dist)-packages/",
        "The installed {module} has no {name}. Check the name, and which release of {module} has it.",
    ),
    Hint(
        "ImportError: cannot import name 'datasets' from 'examples' (unknown location)",
        r"^ImportError: cannot import name '(?P<name>\w+)' from '(?P<module>\w+)[\w.]*' \(unknown location\)",
        "Python found a folder {module}, but no {name} in it. If {module} is a package of yours, pack the folder that "
        "contains {module}: --source-dir FOLDER (source_dir in Python). With cloudtrain run, add that folder to "
        "PYTHONPATH.",
    ),
    Hint(
        "ImportError: libGL.so.1: cannot open shared object file: No such file or directory",
        r"^(?:ImportError|OSError): libGL\.so\.1: cannot open shared object file",
        "If OpenCV needs it, use opencv-python-headless instead of opencv-python: it works without a desktop. "
        "Otherwise, use an image that has the system library.",
    ),
    Hint(
        "ImportError: libsndfile.so.1: cannot open shared object file: No such file or directory",
        r"^(?:ImportError|OSError): (?P<library>\S+\.so[\d.]*): cannot open shared object file",
        "The host does not have the system library {library}. Use an image that has it.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'helpers'",
        _MISSING,
        "The job does not have {top}. If it is a module of yours, pack its folder: --source-dir FOLDER (source_dir in "
        "Python). If it is a published package, add it to the requirements.txt next to the script, under the name that "
        "its documentation gives. With cloudtrain run: install it, or add the folder that has it to PYTHONPATH.",
    ),
)
"""Modules that Python cannot find.

A hint never recommends adding a module that may be the user's own to requirements.txt without this condition, because
a stranger can publish a package of the same name."""
