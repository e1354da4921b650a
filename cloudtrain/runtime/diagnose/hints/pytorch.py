"""Calls of old scripts that PyTorch refuses today."""

from __future__ import annotations

from cloudtrain.runtime.diagnose.hints.table import Hint

_NUMBER_AS_GROUP = (
    "The script passes a number as group=..., as in the first releases of torch.distributed. Remove the argument: "
    "the default is the group of all ranks."
)

HINTS = (
    Hint(
        "AttributeError: 'int' object has no attribute 'allreduce'",
        r"^AttributeError: 'int' object has no attribute '(?:allreduce|broadcast|reduce|allgather|size|rank)\w*'",
        _NUMBER_AS_GROUP,
        traceback=r"torch/distributed/distributed_c10d\.py",
    ),
    Hint(
        "ValueError: Group 0 is not registered, please create group with torch.distributed.new_group API",
        r"^ValueError: Group \d+ is not registered, please create group with torch\.distributed\.new_group API",
        _NUMBER_AS_GROUP,
    ),
    Hint(
        "AssertionError: Unknown backend type tcp",
        r"^(?:AssertionError|ValueError): (?:Unknown backend type|Invalid backend:) '?(?P<backend>tcp|mpi4py)\b",
        "PyTorch no longer has the backend {backend}. Use gloo on CPUs, nccl on GPUs.",
    ),
    Hint(
        "AssertionError: Unknown backend type smddp",
        r"^(?:AssertionError|ValueError): (?:Unknown backend type|Invalid backend:) '?smddp\b",
        "The backend smddp exists only in AWS's images, after import smdistributed.dataparallel.torch.torch_smddp. "
        "Use nccl on GPUs, gloo on CPUs.",
    ),
    Hint(
        "RuntimeError: Distributed package doesn't have MPI built in. ...",
        r"^RuntimeError: Distributed package doesn't have MPI built in",
        "PyTorch's own packages do not have the backend mpi. Use gloo on CPUs, nccl on GPUs; both also work where "
        "mpirun starts the ranks.",
    ),
    Hint(
        "UnpicklingError: Weights only load failed. ... Unsupported global: GLOBAL argparse.Namespace ...",
        r"^(?:\w+\.)?UnpicklingError: Weights only load failed(?s:.*)"
        r"(?:Unsupported (?:global|class)|was not an allowed global)",
        "Since PyTorch 2.6, torch.load refuses files with Python objects other than tensors. If you trust the file: "
        "pass weights_only=False, or set TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1 in the job's environment, which leaves "
        "the script unchanged.",
    ),
    Hint(
        "AttributeError: '_SingleProcessDataLoaderIter' object has no attribute 'next'",
        r"^AttributeError: '_(?:SingleProcess|MultiProcessing)DataLoaderIter' object has no attribute 'next'",
        "Write next(iterator) instead of iterator.next().",
    ),
    Hint(
        "IndexError: invalid index of a 0-dim tensor. Use `tensor.item()` in Python ...",
        r"^IndexError: invalid index of a 0-dim tensor\. Use `tensor\.item\(\)`",
        "Write loss.item() instead of loss.data[0].",
    ),
    Hint(
        "AttributeError: 'NoneType' object has no attribute 'get'",
        r"^AttributeError: 'NoneType' object has no attribute 'get'",
        "The torchrun of PyTorch 1 does not work with Python 3.11. Start the ranks with --processes-per-host N "
        "in place of --torchrun: the script has the same variables.",
        traceback=r'torch/distributed/elastic/multiprocessing/api\.py", line \d+, in to_map',
    ),
    Hint(
        "ModuleNotFoundError: No module named 'torch._six'",
        r"^ModuleNotFoundError: No module named 'torch\._six'",
        "PyTorch 2 does not have torch._six. Use a newer release of the package that imports it. In your own code, "
        "torch._six.inf is math.inf, string_classes is str, container_abcs is collections.abc.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'torch.distributed.deprecated'",
        r"^ModuleNotFoundError: No module named 'torch\.distributed\.deprecated'",
        "Import torch.distributed instead: it has the same functions.",
    ),
    Hint(
        "RuntimeError: operator torchvision::nms does not exist",
        r"^RuntimeError: operator torchvision::\w+ does not exist",
        "This torchvision is not built for this PyTorch. Install the torchvision of the same release, from the same "
        "index: for PyTorch without CUDA, https://download.pytorch.org/whl/cpu. A line torchvision in requirements.txt "
        "gets the build with CUDA.",
    ),
)
