"""Scripts that expect GPUs, or NCCL, on a host without."""

from __future__ import annotations

from cloudtrain.runtime.diagnose.hints.table import Hint

_FALL_BACK = 'torch.device("cuda" if torch.cuda.is_available() else "cpu")'

HINTS = (
    Hint(
        "AssertionError: Torch not compiled with CUDA enabled",
        r"^AssertionError: Torch not compiled with CUDA enabled$",
        "The script uses a GPU, but the PyTorch of this job is built for CPUs. Use an image or an interpreter whose "
        f"PyTorch has CUDA, on a host with a GPU, or choose the device in the script: {_FALL_BACK}.",
    ),
    Hint(
        "AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'",
        r"^AttributeError: module 'torch\._C' has no attribute '_cuda_setDevice'",
        "The script selects a GPU, but the PyTorch of this job is built for CPUs. Use an image or an interpreter "
        "whose PyTorch has CUDA, on a host with a GPU, or call torch.cuda.set_device only if "
        "torch.cuda.is_available().",
    ),
    Hint(
        "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU ...",
        r"^RuntimeError: Found no NVIDIA driver on your system",
        "The host has no GPU, or its container does not see one. Use an instance_type with GPUs, or choose the device "
        f"in the script: {_FALL_BACK}.",
    ),
    Hint(
        "RuntimeError: No CUDA GPUs are available",
        r"^RuntimeError: No CUDA GPUs are available",
        "PyTorch has CUDA, but sees no GPU. Use an instance_type with GPUs, check CUDA_VISIBLE_DEVICES, or choose the "
        f"device in the script: {_FALL_BACK}.",
    ),
    Hint(
        "AcceleratorError: CUDA error: invalid device ordinal",
        r"^(?:AcceleratorError|RuntimeError): CUDA error: invalid device ordinal",
        "A rank selects a GPU that the host does not have. Use the local rank, not the rank, as its number, and no "
        "more processes_per_host than the host has GPUs.",
    ),
    Hint(
        "RuntimeError: Distributed package doesn't have NCCL built in",
        r"^RuntimeError: Distributed package doesn't have NCCL",
        "NCCL needs a PyTorch that is built with CUDA. On hosts without GPUs, use "
        'init_process_group("gloo"), or leave the backend out: PyTorch then chooses one.',
    ),
    Hint(
        "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        r"^(?:ValueError|RuntimeError): ProcessGroupNCCL is only supported with GPUs, no GPUs found",
        'NCCL needs GPUs. Use an instance_type with GPUs, or init_process_group("gloo").',
    ),
    Hint(
        "RuntimeError: Cannot access accelerator device when none is available.",
        r"^RuntimeError: Cannot access accelerator device when none is available",
        "The host has no GPU. Use an instance_type with GPUs, or pin_memory=torch.cuda.is_available() and the like "
        "in the script.",
    ),
)
