"""Every hint appears for the real message of the real library, and not for similar messages."""

from __future__ import annotations

from pathlib import Path

import pytest
from failing_scripts import end_of, printed, report_on

from cloudtrain.contract import FailureClass
from cloudtrain.runtime.diagnose.hints.table import JobFacts
from cloudtrain.runtime.diagnose.rank_exit import RankExit
from cloudtrain.runtime.diagnose.ranks import diagnose
from cloudtrain.runtime.run_folder import RankRecord

TORCH_GROUP = """
import torch, torch.distributed as dist
try:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    {call}
finally:
    dist.destroy_process_group()
"""
SAVED = "import argparse, io, torch\nfile = io.BytesIO()\ntorch.save({saved}, file)\nfile.seek(0)\ntorch.load(file)"
LISTEN = "import socket\nserver = socket.create_server(('127.0.0.1', 0))\nport = server.getsockname()[1]\n"
LIMITED = """
import resource
old = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (80, old[1]))
try:
    kept = [open("/dev/null") for _ in range(100)]
finally:
    resource.setrlimit(resource.RLIMIT_NOFILE, old)
"""
LOADER = "from torch.utils.data import DataLoader\nimport torch\n"

BACKEND = """
import torch.distributed as dist
dist.init_process_group({!r}, store=dist.HashStore(), rank=0, world_size=1)
"""

CHILD_FAILED = """
import sys
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
raise ChildFailedError("train.py", {0: ProcessFailure(0, 1, 1, "")})
"""

HINTED = {
    "channel": ("import os; os.environ['SM_CHANNEL_TRAINING']", "Its channels: test, train."),
    "hyperparameter": ("import os; os.environ['SM_HP_EPOCHS']", "no such hyperparameter"),
    "rank": ("import os; int(os.environ['RANK'])", "RANK is set by a launcher of ranks."),
    "local-rank": ("import os; os.environ['LOCAL_RANK']", "Start ranks with --torchrun or --processes-per-host N"),
    "slurm-step": ("import os; int(os.environ['SLURM_PROCID'])", "SLURM_PROCID belongs to a task that srun starts."),
    "slurm-nodes": ("import os; os.environ['SLURM_JOB_NODELIST']", "the addresses in MASTER_ADDR and SM_HOSTS"),
    "slurm-resolver": (
        "raise RuntimeError('SLURM_PROCID not found in environment. Not running inside a SLURM step?')",
        "multi_worker_mirrored_strategy",
    ),
    "jax": ("raise ValueError('Number of processes must be defined.')", '["JAX_NUM_PROCESSES"]'),
    "process-group": (
        "import torch.distributed as dist; dist.init_process_group('gloo')",
        "RANK is set by a launcher of ranks",
    ),
    "cpu-torch": ("import torch; torch.zeros(1).cuda()", "the PyTorch of this job is built for CPUs"),
    "cpu-torch-device": ("import torch; torch.zeros(1, device='cuda')", "built for CPUs"),
    "cpu-torch-select": ("import torch; torch.cuda.set_device(0)", "only if torch.cuda.is_available()"),
    "pinned": ("import torch; torch.zeros(1).pin_memory()", "pin_memory=torch.cuda.is_available()"),
    "nccl": (BACKEND.format("nccl"), 'init_process_group("gloo")'),
    "mpi": (BACKEND.format("mpi"), "both also work where mpirun starts the ranks"),
    "tcp": (BACKEND.format("tcp"), "no longer has the backend tcp"),
    "smddp": (BACKEND.format("smddp"), "smdistributed.dataparallel"),
    "group-0": (TORCH_GROUP.format(call="dist.all_reduce(torch.ones(1), group=0)"), "Remove the argument"),
    "group-0-broadcast": (TORCH_GROUP.format(call="dist.broadcast(torch.ones(1), 0, group=0)"), "Remove the argument"),
    "port": (LISTEN + "socket.create_server(('127.0.0.1', port))", "Another process listens on the same port"),
    "port-torch": (
        LISTEN + "import torch.distributed as dist; dist.TCPStore('127.0.0.1', port, 1, True)",
        "Another process listens on port ",
    ),
    "descriptors": (LIMITED, "ulimit -n"),
    "program": ("import subprocess; subprocess.run(['no-such-program'])", "the job has no no-such-program"),
    "failed-program": (
        "import subprocess; subprocess.run(['false'], check=True)",
        "error is in the output above the traceback",
    ),
    "killed-program": ("import subprocess; subprocess.run(['sh', '-c', 'kill $$'], check=True)", "in the output above"),
    "torchrun": (CHILD_FAILED, "error is in the output above the traceback"),
    "input": ("import io, sys; sys.stdin = io.StringIO(); input()", "The script calls input()"),
    "display": ("display(3)", "display exists only in a notebook."),
    "relative-path": ("open('config.yaml')", "config.yaml is relative to the working folder"),
    "channel-path": ("open('/opt/ml/input/data/training/x.csv')", "Is training a channel"),
    "weights": (SAVED.format(saved="argparse.Namespace(x=1)"), "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1"),
    "weights-of-a-module": (SAVED.format(saved="torch.nn.Linear(1, 1)"), "weights_only=False"),
    "iterator": (LOADER + "iter(DataLoader(torch.ones(4))).next()", "next(iterator)"),
    "iterator-of-workers": (LOADER + "iter(DataLoader(torch.ones(4), num_workers=1)).next()", "next(iterator)"),
    "item": ("import torch; torch.tensor(1.).data[0]", "loss.item()"),
    "six": ("from torch._six import inf", "torch._six.inf is math.inf"),
    "deprecated": ("import torch.distributed.deprecated", "Import torch.distributed instead"),
    "np.float": ("import numpy as np; np.float", "Write the builtin"),
    "np.Inf": ("import numpy as np; np.Inf", "numpy<2"),
    "np.product": ("import numpy as np; np.product([1])", "numpy<2"),
    "np.copy": ("import numpy as np; np.array([1, 2], dtype='f4', copy=False)", "numpy<2"),
    "np.ragged": ("import numpy as np; np.array([[1, 2], [3]])", "dtype=object"),
    "relative-path-numpy": ("import numpy as np; np.genfromtxt('../cora.txt')", "../cora.txt is relative to"),
    "library": ("import ctypes; ctypes.CDLL('libnosuch.so.4')", "system library libnosuch.so.4"),
}  # fmt: skip

FACTS = JobFacts(channels=["train", "test"])


@pytest.mark.parametrize("case", HINTED)
def test_a_hint_for_the_real_message(case: str) -> None:
    code, expected = HINTED[case]
    end = end_of(code)
    assert expected in diagnose(end, "algo-1", facts=FACTS).hint
    assert expected in diagnose(printed(end), "algo-1", facts=FACTS).hint


SIMILAR = {
    "own-key": "{}['SM_CHANNELS_TRAIN']",
    "own-text-on-a-program": "raise RuntimeError('CalledProcessError: Command x returned non-zero exit status 1')",
    "own-rank": "{}['RANK']",
    "own-step": "{}['SLURM_PROCID']",
    "own-job": "import os; os.environ['SLURM_MY_LICENSE']",
    "key-in-text": "raise KeyError('no SM_CHANNEL_TRAIN for you')",
    "other-attribute": "5 .allreduce",
    "numpy-typo": "import numpy as np; np.flaot",
    "torch-typo": "import torch; torch.cuda.set_divice(0)",
    "own-module-named-numpy": "raise AttributeError('`np.Inf` was removed in the NumPy 3.0 release.')",
    "torch-file-that-is-damaged": "import io, torch; torch.load(io.BytesIO(b'not a file'))",
    "own-text-on-weights": "raise ValueError('Weights only load failed')",
    "own-cuda-text": "raise RuntimeError('my kernel: CUDA error: invalid device ordinal?')",
    "port-in-text": "raise RuntimeError('OSError: [Errno 98] Address already in use, trying another')",
    "iterator-of-mine": "type('Loader', (), {})().next()",
    "index": "[1][5]",
    "list-call": "rows = []\nrows()",
    "other-errno": "raise OSError(25, 'Inappropriate ioctl for device')",
    "tensorflow-typo": "raise AttributeError(\"module 'tensorflow' has no attribute 'sesion'\")",
    "group-of-mine": "raise ValueError('Group 0 is not registered')",
}


@pytest.mark.parametrize("case", SIMILAR)
def test_no_hint_for_a_similar_message(case: str) -> None:
    report = report_on(SIMILAR[case], facts=FACTS)
    assert (report.hint, report.failure_class) == ("", FailureClass.USER_ERROR)


@pytest.mark.parametrize("path", ["/nosuch/x.csv", "/opt/ml/code/x.csv"])
def test_an_absolute_path_is_not_reported_as_packed(path: str) -> None:
    hint = report_on(f"open({path!r})", facts=FACTS).hint
    assert hint == "Check the channels given to fit() against the paths that the script opens."


def test_a_file_that_is_not_in_the_source(tmp_path: Path) -> None:
    facts = JobFacts(code=tmp_path)
    hint = report_on(f"open({str(tmp_path / 'conf' / 'a.yaml')!r})", facts=facts).hint
    assert hint.startswith(
        "conf/a.yaml is not in the job's source. Pack a file that the script reads: --source-dir FOLDER"
    )
    facts_of_job = JobFacts(code=tmp_path / "code")
    hint = report_on(f"open({str(tmp_path / 'data' / 'a.csv')!r})", facts=facts_of_job).hint
    assert hint.startswith("The script looks for data/a.csv next to the folder of the job's source")
    hint = report_on(f"open({str(tmp_path / 'input' / 'data' / 'a.csv')!r})", facts=facts_of_job).hint
    assert hint.startswith("Check the channels")
    code = f"import subprocess, sys; done = subprocess.run([sys.executable, {str(tmp_path / 'b.py')!r}], "
    code += "stderr=subprocess.PIPE, text=True); sys.stderr.write(done.stderr); sys.exit(done.returncode)"
    report = report_on(code, facts=facts)
    assert report.hint.startswith("b.py is not in the job's source. Pack the folder of the scripts")
    assert report.failure_class == FailureClass.MISSING_DATA


def test_without_the_channels_the_hint_does_not_name_any() -> None:
    report = report_on("import os; os.environ['SM_CHANNEL_TRAIN']")
    assert report.hint.startswith(
        "The script reads SM_CHANNEL_TRAIN, but the job has no such channel. Name the"
    )
    assert report.failure_class == FailureClass.MISSING_DATA


def test_a_channel_that_the_job_has_is_not_called_missing() -> None:
    """The script may start a process without the job's environment."""
    assert report_on("{}['SM_CHANNEL_TRAIN']", facts=FACTS).hint == ""


def test_a_job_without_channels_is_reported() -> None:
    report = report_on("import os; os.environ['SM_CHANNEL_TRAIN']", facts=JobFacts(channels=[]))
    assert "Its channels: none." in report.hint


RECORDED = {
    # torch 2.13, c10/cuda/CUDAFunctions.cpp and ProcessGroupNCCL.cpp: they need a build with CUDA, and no GPU
    "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a "
    "driver from http://www.nvidia.com/Download/index.aspx": "instance_type with GPUs",
    "RuntimeError: No CUDA GPUs are available": "CUDA_VISIBLE_DEVICES",
    "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!": "NCCL needs GPUs",
    "AcceleratorError: CUDA error: invalid device ordinal": "Use the local rank",
    # torch 2.13, with a limit of 40 open files and two workers
    "RuntimeError: Too many open files. Communication with the workers is no longer possible. Please increase the "
    "limit using `ulimit -n` in the shell or change the sharing strategy by calling "
    "`torch.multiprocessing.set_sharing_strategy('file_system')` at the beginning of your code": "or use fewer workers",
    # XGBoost 3.2
    "XGBoostError: [21:41:21] /workspace/dmlc-core/src/io/local_filesys.cc:103: LocalFileSystem.ListDirectory ../data "
    "error: No such file or directory\nStack trace:": "does not find ../data. A job has",
    "XGBoostError: [21:54:01] /workspace/dmlc-core/src/io/input_split_base.cc:175: Check failed: files_.size() != 0U "
    "(0 vs. 0) : Cannot find any files that matches the URI pattern data/a.txt\nStack trace:": "not find data/a.txt.",
    "XGBoostError: [21:54:01] /workspace/src/common/io.cc:144: Opening m.json failed: No such file or directory\nS": (
        "not find m.json."
    ),
    # TensorFlow 2.21 with Keras 3, and MXNet 1.9
    "AttributeError: module 'tensorflow._api.v2.train' has no attribute 'Optimizer'": "written for TensorFlow 1",
    "AttributeError: `BasicLSTMCell` is not available with Keras 3.": "TF_USE_LEGACY_KERAS=1",
    "AttributeError: module 'mxnet' has no attribute 'device'": "written for MXNet 2",
    "AttributeError: module 'mxnet.gluon' has no attribute 'metric'": "mx.metric",
    # torchvision 0.29
    "RuntimeError: Error downloading train-images-idx3-ubyte.gz:\nTried http://yann.lecun.com/exdb/mnist/, got:\n"
    "<urlopen error [Errno -2] Name or service not known>": "the output above says why",
    # opencv-python on a machine without a desktop
    "ImportError: libGL.so.1: cannot open shared object file: No such file or directory": "opencv-python-headless",
}


RECORDED_TRACEBACKS = {
    # PyTorch 2.13 without CUDA, torchvision from PyPI
    "RuntimeError: operator torchvision::nms does not exist": "not built for this PyTorch",
    # PyTorch 1.13 of Debian 12, with Python 3.11
    '  File "/usr/lib/python3/dist-packages/torch/distributed/elastic/multiprocessing/api.py", line 162, in to_map\n'
    "AttributeError: 'NoneType' object has no attribute 'get'": "--processes-per-host N",
    # a script without a terminal
    "os.popen('stty size', 'r')\nValueError: not enough values to unpack (expected 2, got 0)": "a rank has none",
    "os.get_terminal_size()\nOSError: [Errno 25] Inappropriate ioctl for device": "shutil.get_terminal_size()",
    # Lightning 2.6
    "lightning.Trainer\nTypeError: Trainer.__init__() got an unexpected keyword argument 'gpus'": "devices=N",
    "lightning.Trainer\nTypeError: Trainer.__init__() got an unexpected keyword argument 'tpu_cores'": "Lightning 1",
    "Trainer.from_argparse_args\nAttributeError: type object 'Trainer' has no attribute 'from_argparse_args'": "guide",
    "ValueError: You selected an invalid accelerator name: `accelerator='ddp'`. Available names are: auto, cuda, tpu, "
    "mps, cpu.": "has ddp as a strategy",
    "MisconfigurationException: No supported gpu backend found!": "The host has no GPU",
    # huggingface_hub 2.4, transformers 5.23, datasets and evaluate, on a host without a network
    "LocalEntryNotFoundError: Got: ConnectError: [Errno -2] Name or service not known": "Hugging Face Hub",
    "OSError: We couldn't connect to 'https://huggingface.co' to load the files": "in place of the name",
    "ConnectionError: Couldn't reach 'glue' on the Hub (OfflineModeIsEnabled)": "HF_HUB_OFFLINE",
    "FileNotFoundError: Couldn't find a module script at /x/glue/glue.py. Module 'glue' doesn't exist on the Hugging "
    "Face Hub either.": "Hugging Face Hub",
    # aiohttp 3.14, as PyTorch Geometric downloads
    "ClientConnectorDNSError: Cannot connect to host example.org:443 ssl:default [Name or service not known]": "reach",
    # torchvision 0.14
    "RuntimeError: Error downloading train-images-idx3-ubyte.gz": "the output above says why",
}


@pytest.mark.parametrize("text", RECORDED_TRACEBACKS)
def test_a_hint_for_a_failure_that_needs_a_library(text: str) -> None:
    kind, _, message = text.rpartition("\n")[2].partition(": ")
    record = RankRecord(1, 0, 1, kind, message, f"Traceback (most recent call last):\n{text}", 5.0)
    assert RECORDED_TRACEBACKS[text] in diagnose(RankExit(0, 1, 9.0, record), "algo-1").hint


HOST = "nosuchhost.invalid"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (f"import urllib.request; urllib.request.urlopen('http://{HOST}/x')", "cannot reach the server"),
        (f"import requests; requests.get('http://{HOST}/x', proxies=dict(http=''))", f"cannot reach {HOST}"),
        (f"import socket; socket.create_connection(('{HOST}', 80))", "cannot reach the server"),
        (
            f"import urllib.request\ntry: urllib.request.urlopen('http://{HOST}/x')\nexcept OSError: open('x')",
            "server",
        ),
        ("import socket\ntry: raise socket.gaierror(8, 'my own text')\nexcept OSError: 1 / 0", ""),
    ],
)
def test_a_host_without_a_network(code: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that never resolves, whatever the network is."""
    monkeypatch.setenv("no_proxy", "*")
    hint = report_on(code).hint
    assert (expected in hint) if expected else hint == ""


@pytest.mark.parametrize("text", RECORDED)
def test_a_hint_for_a_message_that_this_machine_cannot_produce(text: str) -> None:
    kind, _, message = text.partition(": ")
    record = RankRecord(1, 0, 1, kind, message, f"Traceback (most recent call last):\n{text}", 5.0)
    assert RECORDED[text] in diagnose(RankExit(0, 1, 9.0, record), "algo-1").hint


@pytest.mark.parametrize(
    ("function", "hint"), [("patch_aws_sm_env_for_torch_nccl_backend", "--torchrun"), ("main", "")]
)
def test_deepspeed_without_a_launcher(function: str, hint: str) -> None:
    """Recorded: DeepSpeed 0.19.8 in a job without distribution. tests/e2e/test_framework_examples.py raises it."""
    traceback = f'File "/lib/deepspeed/comm/comm.py", line 1008, in {function}'
    record = RankRecord(1, 0, 1, "KeyError", "'OMPI_COMM_WORLD_RANK'", traceback, 5.0)
    found = diagnose(RankExit(0, 1, 9.0, record), "algo-1").hint
    assert hint in found
    assert bool(hint) == ("DeepSpeed" in found)


ARGPARSE = (
    "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--epochs', type=int)\n"
    "parser.add_argument('--optimizer', choices=['adam', 'sgd'])\nparser.add_argument('--amp', action='store_true')\n"
    "parser.add_argument('--data', required={required})\nparser.parse_args()"
)
CLICK = "import click\n@click.command()\n@click.option('--epochs', type=int)\ndef main(epochs): ...\nmain()"
ABSL = """
from absl import app, flags
flags.DEFINE_integer("absl_epochs", 1, "", allow_override=True)
app.run(print)
"""
PRINT_AND_EXIT = "import sys; print({!r}, file=sys.stderr); sys.exit({})"


@pytest.mark.parametrize(
    ("code", "arguments", "expected"),
    [
        (ARGPARSE, "--epohcs 5", "does not declare --epohcs 5."),
        (ARGPARSE, "--amp True", "Pass the flag after --"),
        (ARGPARSE, "--model_dir s3://b/m", "model_dir=False"),
        (ARGPARSE, "--optimizer adm", "passes 'adm' as --optimizer"),
        (ARGPARSE, "--epochs 0.1", "expects int for --epochs, but the job passes '0.1'."),
        (ARGPARSE.replace("{required}", "True"), "", "does not pass --data."),
        (CLICK, "--epohcs 5", "does not declare --epohcs."),
        (CLICK, "--nothing-like-it 5", "does not declare --nothing-like-it."),
        (ABSL, "--absl_epohcs=5", "does not define the flag absl_epohcs."),
        (ABSL, "--nothing_like_it=5", "does not define the flag nothing_like_it."),
    ],
)
def test_a_hint_for_arguments_that_the_parser_refuses(code: str, arguments: str, expected: str) -> None:
    assert expected in report_on(code.replace("{required}", "False"), *arguments.split()).hint


@pytest.mark.parametrize(
    "code",
    [
        PRINT_AND_EXIT.format("train.py: error: unrecognized arguments: --x", 1),
        PRINT_AND_EXIT.format("tool: error: unrecognized arguments: --x\n" + "line\n" * 6, 2),
        PRINT_AND_EXIT.format("no epochs: error: unrecognized arguments", 2),
        PRINT_AND_EXIT.format("Error: No such option was found", 2),
        PRINT_AND_EXIT.format("train.py: error: unrecognized arguments: --x", "1 / 0"),
    ],
)
def test_no_hint_for_output_that_is_not_a_parsers(code: str) -> None:
    assert report_on(code).hint == ""


UNDER_TF_FUNCTION = """\
Traceback (most recent call last):
  File "train.py", line 87, in main
    loss_value = training_step(images, labels, batch == 0)
  File "/tmp/__autograph_generated_file.py", line 28, in if_body
    ag__.converted_call(ag__.ld(hvd).broadcast_variables, (ag__.converted_call(ag__.ld(opt).{called}, (), None, f),), f)
TypeError: in user code:

    File "train.py", line 81, in training_step  *
        hvd.broadcast_variables(opt.{called}(), root_rank=0)

    TypeError: 'list' object is not callable
"""


@pytest.mark.parametrize(("called", "expected"), [("variables", "TF_USE_LEGACY_KERAS=1"), ("values", "")])
def test_a_hint_under_tf_function(called: str, expected: str) -> None:
    """As TensorFlow 2.21 with Keras 3 ends `tensorflow2_mnist.py` of Horovod."""
    traceback = UNDER_TF_FUNCTION.format(called=called)
    record = RankRecord(1, 0, 1, "TypeError", traceback.partition("TypeError: ")[2], traceback, 5.0)
    lines = (*traceback.split("\n"), "a line of another thread")
    for end in (RankExit(0, 1, 9.0, record, ()), RankExit(0, 1, 9.0, None, lines)):
        hint = diagnose(end, "algo-1").hint
        assert (expected in hint) if expected else hint == ""
