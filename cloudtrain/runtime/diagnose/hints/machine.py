"""Hints for failures of the launch, the GPUs and the network."""

from __future__ import annotations

from dataclasses import replace

from cloudtrain.contract import FailureClass
from cloudtrain.runtime.diagnose.hints.table import Hint
from cloudtrain.runtime.sampling.xids import OF_HARDWARE

_NO_RANKS = (
    "A job without distribution has none: its script runs once on each "
    "host, as python train.py does. Start ranks with --torchrun or --processes-per-host N (distribution in a job file)."
)
_START_RANKS = "{variable} is set by a launcher of ranks. " + _NO_RANKS

_NO_STEP = (
    "{variable} belongs to a task that srun starts. cloudtrain starts the ranks itself: read RANK, WORLD_SIZE, "
    "LOCAL_RANK and GROUP_RANK in place of SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID and SLURM_NODEID, and the "
    "addresses in MASTER_ADDR and SM_HOSTS. To leave the script as it is, set its variables in a "
    "shell script that starts it."
)

LAUNCHERS = (
    Hint(
        "KeyError: 'RANK'",
        r"^KeyError: '(?P<variable>(?:LOCAL_|GROUP_)?(?:RANK|WORLD_SIZE)|MASTER_ADDR|MASTER_PORT)'(?m:$)",
        _START_RANKS,
        traceback=r'os(?:\.py|>)", line \d+, in __getitem__',
    ),
    Hint(
        "KeyError: 'OMPI_COMM_WORLD_RANK'",
        r"^KeyError: 'OMPI_COMM_WORLD_RANK'(?m:$)",
        "DeepSpeed found no variable RANK. " + _NO_RANKS,
        traceback=r"deepspeed.*, in patch_aws_sm_env_for_torch_nccl_backend",
    ),
    Hint(
        "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, "
        "but not set",
        r"^ValueError: Error initializing torch\.distributed using env:// rendezvous: environment variable "
        r"(?P<variable>\w+) expected, but not set",
        _START_RANKS,
    ),
    Hint(
        "KeyError: 'SLURM_PROCID'",
        r"^KeyError: '(?P<variable>SLURM_(?:PROCID|NTASKS|NPROCS|LOCALID|NODEID|NNODES|NODELIST|TASKS_PER_NODE"
        r"|JOB_NODELIST|JOB_NUM_NODES|NTASKS_PER_NODE|STEP_\w+))'(?m:$)",
        _NO_STEP,
        traceback=r'os(?:\.py|>)", line \d+, in __getitem__',
    ),
    Hint(
        "ValueError: Number of processes must be defined.",
        r"^ValueError: (?:Number of processes|The process id of the current process) must be defined\.",
        "JAX takes only the address from the job. Call jax.distributed.initialize("
        'num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=int(os.environ["JAX_PROCESS_ID"])).',
    ),
    Hint(
        "RuntimeError: SLURM_PROCID not found in environment. Not running inside a SLURM step?",
        r"^RuntimeError: SLURM_\w+ not found in environment\. Not running inside a SLURM step\?",
        "cloudtrain starts the ranks itself, without a step for each. Choose the distribution "
        "multi_worker_mirrored_strategy, which sets TF_CONFIG, and leave out SlurmClusterResolver: TensorFlow's "
        "strategies read TF_CONFIG without a resolver.",
    ),
)
"""Variables that a launcher sets and a job without a distribution does not have."""

_ANOTHER_HOST = (
    "Run the job on another host: submit it again, or away from SageMaker, set max_retry_attempts."
)

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
"""The loader's exception if one of the two failures above interrupts its wait for a batch."""

GPU_FAILURES = (
    Hint(
        "AcceleratorError: CUDA error: uncorrectable ECC error encountered",
        r"uncorrectable ECC error encountered|CUDA_ERROR_ECC_UNCORRECTABLE|cudaErrorECCUncorrectable",
        f"The memory of a GPU of this host is faulty. {_ANOTHER_HOST} nvidia-smi -q -d ECC shows which GPU: reset or "
        "replace it.",
        failure_class=FailureClass.GPU_FAULT,
    ),
    Hint(
        "NVRM: Xid (PCI:0000:53:00): 79, GPU has fallen off the bus.",
        rf"NVRM: Xid \((?P<gpu>[^)]*)\): (?P<xid>{'|'.join(map(str, OF_HARDWARE))})\b",
        f"The driver reported Xid {{xid}} of {{gpu}}: {{xid_meaning}}. {_ANOTHER_HOST} {{xid_action}}",
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
"""Failed, incompatible or full GPUs, and the messages of NCCL when ranks lose one another.

The patterns match both an exception, and the output of native code that ends a rank. Causes precede consequences,
because the output of a rank may contain both."""

_FALL_BACK = 'torch.device("cuda" if torch.cuda.is_available() else "cpu")'

GPUS = (
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
"""Scripts that expect GPUs or NCCL on a host without them."""

_FREE_PORT = (
    "Do not fix the number in the script: several ranks and jobs share a host. In a job with a distribution, PyTorch "
    "finds a free one in MASTER_PORT (init_method='env://'). For a server of your own, use port 0."
)

PORTS = (
    Hint(
        "DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, ...",
        r"The server socket has failed to listen on any local network address\. port: (?P<port>\d+)"
        r".*(?:EADDRINUSE|address already in use)",
        f"Another process listens on port {{port}} of this host. {_FREE_PORT}",
    ),
    Hint(
        "OSError: [Errno 98] Address already in use",
        r"^OSError: \[Errno \d+\] Address already in use",
        f"Another process listens on the same port of this host. {_FREE_PORT}",
    ),
)
"""Ports on which another process listens."""

_UNREACHABLE = (
    r"(?:Name or service not known|Temporary failure in name resolution|No address associated with hostname"
    r"|Name does not resolve|nodename nor servname provided|getaddrinfo failed|Network is unreachable|No route to host"
    r"|ConnectTimeoutError|urlopen error (?:\[Errno 110\]|timed out)|ProxyError|Tunnel connection failed)"
)

_IN_CHAIN = (
    r"(?m)^(?:\w+\.)*(?:URLError|gaierror|NewConnectionError|NameResolutionError|ConnectError|ConnectTimeout"
    rf"|ClientConnector\w*Error|ConnectionError|ProxyError|MaxRetryError): .*{_UNREACHABLE}"
)
"""Exceptions of urllib, urllib3, requests, httpx and aiohttp, from which libraries may raise others."""

_NOT_BETWEEN_RANKS = r"^(?!Dist\w*Error\b)"

_INSTEAD = (
    "Download the data where there is a network, store it as a channel (--input NAME=URI, inputs in Python), and give "
    "the script the channel's folder. With cloudtrain run, any folder that all hosts have will do."
)

NETWORK = (
    Hint(
        "LocalEntryNotFoundError: An error happened while trying to locate the file on the Hub and we cannot find the "
        "requested files in the local cache. ...",
        "",
        "This host cannot reach the Hugging Face Hub (no network, or HF_HUB_OFFLINE is set), and has no copy of what "
        "the script loads. Download it where there is a network, store it as a channel (--input NAME=URI, inputs in "
        "Python), and give the script the channel's folder in place of the name.",
        traceback=r"(?m)^(?:\w+\.)*(?:LocalEntryNotFoundError|OfflineModeIsEnabled): "
        r"|OSError: We couldn't connect to 'https://huggingface\.co'|Couldn't reach '[^']+' on the Hub \("
        r"|doesn't exist on the Hugging Face Hub either",
    ),
    Hint(
        "ConnectionError: HTTPSConnectionPool(host='example.org', port=443): Max retries exceeded with url: ...",
        r"host='(?P<server>[\w.-]+)'",
        "This host cannot reach {server}, from which the script downloads. " + _INSTEAD,
        traceback=_IN_CHAIN,
    ),
    Hint(
        "URLError: <urlopen error [Errno -2] Name or service not known>",
        _NOT_BETWEEN_RANKS,
        "This host cannot reach the server from which the script downloads. " + _INSTEAD,
        traceback=_IN_CHAIN,
    ),
    Hint(
        "RuntimeError: Error downloading train-images-idx3-ubyte.gz",
        r"^RuntimeError: Error downloading \S+(?m:$)",
        "torchvision could not download the data set: the output above says why. " + _INSTEAD,
    ),
)
"""Downloads on a host without a network."""
