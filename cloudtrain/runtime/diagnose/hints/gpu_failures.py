"""GPUs that fail, do not fit the framework, or have no memory left; and what NCCL reports when ranks lose one another.

A rank may learn of such a failure from an exception, or native code may end it and print why: the patterns fit both.
Causes go before consequences, because the output of a rank may have both.
"""

from __future__ import annotations

from dataclasses import replace

from cloudtrain.contract import FailureClass
from cloudtrain.runtime.diagnose.hints.table import Hint

_ANOTHER_HOST = (
    "Run the job on another host: submit it again, or away from SageMaker, set max_retry_attempts."
)

_FAULTY_XIDS = (48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 110, 119, 120, 140, 143, 145, 149, 154)
"""Of memory, links and firmware. Others, such as 13, 31, 43 and 45, are usually mistakes of programs."""

_BUS_ERROR = Hint(
    "RuntimeError: DataLoader worker (pid 123) is killed by signal: Bus error. ...",
    r"is killed by signal: Bus error|Unexpected bus error encountered in worker"
    r"|</torch_\w+>.*No space left on device|unable to allocate shared memory\(shm\)",
    "/dev/shm, where workers leave their batches, is full. In a container, raise its limit (platform_options: "
    "shm_size; docker run --shm-size). Elsewhere use fewer num_workers, a smaller prefetch_factor, or "
    'torch.multiprocessing.set_sharing_strategy("file_system").',
    failure_class=FailureClass.OUT_OF_MEMORY,
)
_KILLED = Hint(
    "RuntimeError: DataLoader worker (pid 123) is killed by signal: Killed. ",
    r"DataLoader worker \(pid \d+\) is killed by signal: Killed",
    "The kernel probably killed the worker because the host has no memory left: use fewer num_workers, or an "
    "instance type with more memory.",
    failure_class=FailureClass.OUT_OF_MEMORY,
)

_WORKER_ENDED = r"DataLoader worker \(pid\(s\) [\d, ]+\) exited unexpectedly"
"""The loader raises this because of one of the two above, if that one interrupts its wait for a batch."""

HINTS = (
    Hint(
        "AcceleratorError: CUDA error: uncorrectable ECC error encountered",
        r"uncorrectable ECC error encountered|CUDA_ERROR_ECC_UNCORRECTABLE|cudaErrorECCUncorrectable",
        f"The memory of a GPU of this host is faulty. {_ANOTHER_HOST} nvidia-smi -q -d ECC shows which GPU: reset or "
        "replace it.",
        failure_class=FailureClass.GPU_FAULT,
    ),
    Hint(
        "NVRM: Xid (PCI:0000:53:00): 79, GPU has fallen off the bus.",
        rf"NVRM: Xid \([^)]*\): (?P<xid>{'|'.join(map(str, _FAULTY_XIDS))})\b",
        f"The driver reported Xid {{xid}}, a fault of a GPU or of its links. {_ANOTHER_HOST} NVIDIA's list of Xid "
        "errors says what the number means.",
        failure_class=FailureClass.GPU_FAULT,
    ),
    Hint(
        "AcceleratorError: CUDA error: GPU is lost",
        r"GPU has fallen off the bus|GPU is lost|CUDA error: uncorrectable NVLink error|hardware stack error"
        r"|Unable to determine the device handle for GPU",
        f"A GPU of this host has failed. {_ANOTHER_HOST}",
        failure_class=FailureClass.GPU_FAULT,
    ),
    Hint(
        "AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        r"CUDA-capable device\(s\) is/are busy or unavailable|CUDA_ERROR_DEVICE_UNAVAILABLE",
        "Another process has this GPU for itself, or the GPU needs a reset: nvidia-smi shows both. End the process, or "
        "run the job on another host.",
        failure_class=FailureClass.GPU_FAULT,
    ),
    Hint(
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). ... Error 802: system not yet initialized",
        r"(?:Error 802: |CUDA error: )system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY",
        f"The service that connects the GPUs of this host, nvidia-fabricmanager, does not run or has another version "
        f"than the driver. Start it, or: {_ANOTHER_HOST[0].lower()}{_ANOTHER_HOST[1:]}",
        failure_class=FailureClass.GPU_FAULT,
    ),
    Hint(
        "RuntimeError: The NVIDIA driver on your system is too old (found version 12020). ...",
        r"The NVIDIA driver on your system is too old|CUDA driver version is insufficient for CUDA runtime version"
        r"|unsupported display driver / cuda driver combination|forward compatibility was attempted on non supported HW"
        r"|Driver/library version mismatch",
        "The driver of the host does not fit the CUDA of the framework. Use an image with an older CUDA, such as "
        "pytorch-cuda126, or a host with a newer driver. On data-centre GPUs, cloudtrain's images bring libraries for "
        "drivers of the previous major version.",
        failure_class=FailureClass.GPU_SETUP,
    ),
    Hint(
        "AcceleratorError: CUDA error: no kernel image is available for execution on the device",
        r"no kernel image is available for execution on the device|PTX was compiled with an unsupported toolchain"
        r"|CUDA_ERROR_NO_BINARY_FOR_GPU",
        "The framework is not built for this GPU: its warning above lists the GPUs that it is built for. V100 (p3) "
        "needs PyTorch for CUDA 12.6, as in pytorch-cuda126; a newer GPU needs a newer release.",
        failure_class=FailureClass.GPU_SETUP,
    ),
    Hint(
        "DistBackendError: NCCL error ... Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000",
        r"Duplicate GPU detected ?: rank (?P<rank>\d+) and rank (?P<other>\d+) both on CUDA device",
        "Ranks {other} and {rank} use the same GPU, which NCCL refuses. Select GPUs by the local rank "
        "(torch.cuda.set_device), and start no more ranks on a host than it has GPUs (processes_per_host).",
        failure_class=FailureClass.GPU_SETUP,
    ),
    Hint(
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        r"CU(?:BLAS|DNN|SOLVER|SPARSE)_STATUS_(?:INTERNAL_ERROR_DEVICE_)?ALLOC(?:ATION)?_FAILED|CUFFT_ALLOC_FAILED"
        r"|CUDA_ERROR_OUT_OF_MEMORY|Cuda failure (?:\d+ )?'out of memory'",
        "A library of CUDA found no GPU memory next to that of the framework. Use a smaller batch, or leave it some: "
        "torch.cuda.set_per_process_memory_fraction(0.9), or in TensorFlow tf.config.experimental.set_memory_growth. "
        "Check with nvidia-smi that no other process uses the GPU.",
        failure_class=FailureClass.OUT_OF_MEMORY,
    ),
    Hint(
        "ResourceExhaustedError: OOM when allocating tensor with shape[64,3] and type float on /job:localhost/...",
        r"OOM when allocating tensor|failed to allocate memory\s+\[(?:Op:|\[\{\{node)|Dst tensor is not initialized",
        "The GPU has no memory left for TensorFlow. Use a smaller batch size, mixed precision, or an instance type "
        "whose GPUs have more memory.",
        failure_class=FailureClass.OUT_OF_MEMORY,
    ),
    _BUS_ERROR,
    replace(_BUS_ERROR, pattern=_WORKER_ENDED, traceback=_BUS_ERROR.pattern),
    Hint(
        "DistBackendError: NCCL error ... Error while creating shared memory segment /dev/shm/nccl-Ab1Cd2 ...",
        r"Error while creating shared memory segment \S*nccl-|failed to extend /dev/shm/nccl-"
        r"|posix_fallocate failed ?: No space left on device",
        "/dev/shm, through which NCCL connects the ranks of a host, is probably full. In a container, raise its limit "
        "(platform_options: shm_size; docker run --shm-size), or use fewer num_workers in the DataLoader.",
        failure_class=FailureClass.OUT_OF_MEMORY,
    ),
    _KILLED,
    replace(_KILLED, pattern=_WORKER_ENDED, traceback=_KILLED.pattern),
    Hint(
        "AcceleratorError: CUDA error: device-side assert triggered",
        r"CUDA error: (?:device-side assert triggered|an illegal memory access was encountered|misaligned address"
        r"|unspecified launch failure|an illegal instruction was encountered)",
        "A kernel failed on the GPU, often because an index or a label is out of range. CUDA reports it late: with "
        "CUDA_LAUNCH_BLOCKING=1 in the job's environment, the traceback names the right line.",
        failure_class=FailureClass.USER_ERROR,
    ),
    Hint(
        "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        r"CU(?:BLAS|DNN|SOLVER|SPARSE)_STATUS_(?:NOT_INITIALIZED|EXECUTION_FAILED|INTERNAL_ERROR)",
        "A library of CUDA could not start, or one of its kernels failed. Usual causes: the GPU has no memory left for "
        "it (use a smaller batch), an index or a label is out of range, or the driver does not fit the CUDA of the "
        "framework. With CUDA_LAUNCH_BLOCKING=1 in the job's environment, the traceback names the right line.",
    ),
    Hint(
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, ...) ran for 1800012 "
        "milliseconds before timing out.",
        r"Watchdog caught collective operation timeout: WorkNCCL\(.*?OpType=(?P<operation>\w+)",
        "A rank did not take part in {operation}, so NCCL ended this one: compare the last log lines of all ranks. If "
        "the ranks are only slow, raise the timeout: CLOUDTRAIN_COLLECTIVE_TIMEOUT, or "
        "init_process_group(timeout=...).",
        failure_class=FailureClass.COLLECTIVE_TIMEOUT,
    ),
    Hint(
        "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued "
        "collectives.",
        r"ProcessGroupNCCL's watchdog got stuck for|due to ProcessGroupNCCL watchdog hang",
        "A call of NCCL or CUDA did not return, so the watchdog ended this rank: compare the last log lines of all "
        "ranks. A long pause of the whole process has the same effect; TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC allows more.",
        failure_class=FailureClass.COLLECTIVE_TIMEOUT,
    ),
    Hint(
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        r"ncclRemoteError|remote process exited or there was a network error|Received a dump signal (?:due to|from)"
        r"|Some NCCL operations have failed or timed out",
        "This rank lost another one, or the network between them failed. The report names the first rank that failed, "
        "if its own failure is known: look at the logs of the other ranks.",
        failure_class=FailureClass.COLLECTIVE_TIMEOUT,
    ),
)
