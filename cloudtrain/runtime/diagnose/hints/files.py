"""Files that do not exist, and too many open files."""

from __future__ import annotations

from cloudtrain.contract import FailureClass
from cloudtrain.runtime.diagnose.hints.table import Hint

_RELATIVE = (
    "{path} is relative to the working folder: at the start, the job's copy of the source; with cloudtrain run, the "
    "folder of the shell, or --wdir. Pack a file that the script reads: --source-dir FOLDER (source_dir in Python), "
    "and see that no ignore file excludes it. Create the folder of a file that it writes. Large data belongs in a "
    "channel."
)

HINTS = (
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
