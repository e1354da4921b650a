"""Failures of GPUs and of NCCL, as the logs of public issues show them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cloudtrain.contract import FailureClass
from cloudtrain.runtime.diagnose.first_cause import Failures, is_consequence
from cloudtrain.runtime.diagnose.machine_faults import gpu_faults, gpu_faults_of
from cloudtrain.runtime.diagnose.rank_exit import RankExit
from cloudtrain.runtime.diagnose.ranks import diagnose
from cloudtrain.runtime.run_folder import RankRecord
from cloudtrain.runtime.sampling.xids import XIDS

FRAMES = "\n".join(f"frame #{number}: <unknown function> + 0xdc253 (0x7fb6358b0253)" for number in range(30))
STACKS = "\n".join(
    ["Fatal Python error: Aborted", "", "Thread 0x00007f32 (most recent call first):"]
    + [f'  File "/opt/conda/lib/python3.11/threading.py", line {number} in wait' for number in range(400)]
)

ABORTED = {
    # github.com/NVIDIA/Megatron-LM/issues/935
    "watchdog": (
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "  what():  [PG 1 Rank 6] Process group watchdog thread terminated with exception: [Rank 6] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=199, OpType=_REDUCE_SCATTER_BASE, NumelIn=7098994688, "
        "NumelOut=443687168, Timeout(ms)=600000) ran for 882722 milliseconds before timing out.\n"
        "Exception raised from checkTimeout at /opt/pytorch/ProcessGroupNCCL.cpp:567 (most recent call first):",
        FailureClass.COLLECTIVE_TIMEOUT,
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=199",
        "did not take part in _REDUCE_SCATTER_BASE",
    ),
    # github.com/hiyouga/LlamaFactory/issues/7396
    "logged by the watchdog": (
        "[rank0]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=466119168, NumelOut=466119168, Timeout(ms)=600000) "
        "ran for 600060 milliseconds before timing out.",
        FailureClass.COLLECTIVE_TIMEOUT,
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580",
        "did not take part in ALLREDUCE",
    ),
    # github.com/om-ai-lab/VLM-R1/issues/257
    "watchdog stuck": (
        "[rank6]:[E429 13:55:49.384372190 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) Rank 6] "
        "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued "
        "collectives. This typically indicates a NCCL/CUDA API (e.g., CudaEventDestroy) hang blocking the watchdog",
        FailureClass.COLLECTIVE_TIMEOUT,
        "ProcessGroupNCCL's watchdog got stuck for 480 seconds",
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
    ),
    # github.com/hiyouga/LlamaFactory/issues/6849
    "lost another rank": (
        "[rank5]:[E207 19:37:09.983540349 ProcessGroupNCCL.cpp:681] [Rank 5] Some NCCL operations have failed or timed "
        "out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on "
        "corrupted/incomplete data.\n"
        "[rank5]:[E207 19:37:09.983600771 ProcessGroupNCCL.cpp:1895] [PG ID 0 PG GUID 0(default_pg) Rank 5] Process "
        "group watchdog thread terminated with exception: NCCL error: remote process exited or there was a network "
        "error, NCCL version 2.21.5\n"
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
        "Last error:\nsocketProgressOpt: Call to recv from 10.119.24.53<49901> failed : Broken pipe",
        FailureClass.COLLECTIVE_TIMEOUT,
        "Some NCCL operations have failed or timed out",
        "This rank lost another one",
    ),
    # github.com/kohya-ss/sd-scripts/issues/1434
    "ECC seen by the watchdog": (
        "[E ProcessGroupNCCL.cpp:916] [Rank 1] NCCL watchdog thread terminated with exception: CUDA error: "
        "uncorrectable ECC error encountered\n"
        "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
        "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1.",
        FailureClass.GPU_FAULT,
        "CUDA error: uncorrectable ECC error encountered",
        "nvidia-smi -q -d ECC",
    ),
    # github.com/nagadit/DeepFaceLab_Linux/issues/89
    "ECC in TensorFlow": (
        "2024-03-05 10:00:00.123456: F tensorflow/stream_executor/lib/statusor.cc:34] Attempting to fetch value "
        "instead of handling error Internal: failed initializing StreamExecutor for CUDA device ordinal 0: Internal: "
        "failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered",
        FailureClass.GPU_FAULT,
        "Attempting to fetch value instead of handling error",
        "max_retry_attempts",
    ),
    "no memory of the host": (
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc",
        FailureClass.OUT_OF_MEMORY,
        "std::bad_alloc",
        "smaller batch",
    ),
    "no memory of the GPU, seen by the watchdog": (
        "[rank1]:[E410 01:50:33.889423318 ProcessGroupNCCL.cpp:1895] [PG ID 0 PG GUID 0(default_pg) Rank 1] Process "
        "group watchdog thread terminated with exception: CUDA error: out of memory",
        FailureClass.OUT_OF_MEMORY,
        "CUDA error: out of memory",
        "smaller batch",
    ),
    # github.com/pytorch/ci-infra/pull/490
    "no shared memory for NCCL": (
        "node-1:202016:202235 [0] misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-WU88OE to "
        "9637892 bytes, error: No space left on device (28)",
        FailureClass.OUT_OF_MEMORY,
        "Error: failed to extend /dev/shm/nccl-WU88OE",
        "shm_size",
    ),
    # github.com/deepseek-ai/DeepSeek-MoE/issues/47
    "a kernel failed": (
        "[rank1]:[E410 01:50:33.889423318 ProcessGroupNCCL.cpp:1895] [PG ID 0 PG GUID 0(default_pg) Rank 1] Process "
        "group watchdog thread terminated with exception: CUDA error: unspecified launch failure",
        FailureClass.USER_ERROR,
        "CUDA error: unspecified launch failure",
        "CUDA_LAUNCH_BLOCKING=1",
    ),
    "no memory of the GPU": (
        "terminate called after throwing an instance of 'c10::OutOfMemoryError'\n"
        "  what():  CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB",
        FailureClass.OUT_OF_MEMORY,
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "smaller batch size",
    ),
}


def aborted(printed: str, code: int = -6, record: RankRecord | None = None) -> RankExit:
    """A rank that native code ended. The end of its log shows only frames and stacks."""
    output = f"step 17\n{printed}\n{FRAMES}\n{STACKS}\n"
    return RankExit(3, code, 100.0, record, tuple(output.splitlines()[-50:]), output)


@pytest.mark.parametrize("code", [-6, 134])
@pytest.mark.parametrize("case", ABORTED)
def test_an_abort_is_explained_by_what_native_code_printed(case: str, code: int) -> None:
    printed, kind, message, hint = ABORTED[case]
    report = diagnose(aborted(printed, code), "algo-1")
    assert (report.failure_class, report.exit_code) == (kind, 134)
    assert report.message.startswith(message)
    assert hint in report.hint
    assert code == 134 or is_consequence(report) == (kind == FailureClass.COLLECTIVE_TIMEOUT)


def test_an_abort_without_an_explanation_stays_a_crash() -> None:
    report = diagnose(aborted("the script says NCCL and Broken pipe"), "algo-1")
    assert (report.failure_class, report.message) == (FailureClass.KILLED, "")
    assert "Python stack" in report.hint


def test_an_exception_before_the_crash_is_the_cause() -> None:
    """NCCL's threads often end a process that is about to exit after an exception."""
    record = RankRecord(1, 3, 1, "ValueError", "bad sample", "the traceback", 99.0)
    report = diagnose(aborted(ABORTED["lost another rank"][0], record=record), "algo-1")
    assert (report.exception_type, report.message, report.signal) == ("ValueError", "bad sample", None)


def raised(kind: str, message: str, rank: int = 0) -> RankExit:
    return RankExit(rank, 1, 101.0, RankRecord(1, rank, 1, kind, message, "", 101.0))


EXCEPTIONS = [
    # github.com/tloen/alpaca-lora/issues/123
    ("RuntimeError", "CUDA error: uncorrectable ECC error encountered\nCompile with ...", FailureClass.GPU_FAULT),
    ("AcceleratorError", "CUDA error: CUDA-capable device(s) is/are busy or unavailable", FailureClass.GPU_FAULT),
    ("RuntimeError", "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
     FailureClass.GPU_FAULT),
    ("RuntimeError", "The NVIDIA driver on your system is too old (found version 12020). Please update your GPU driver",
     FailureClass.GPU_SETUP),
    # github.com/pytorch/pytorch/issues/52736
    ("RuntimeError", "CUDA error: no kernel image is available for execution on the device", FailureClass.GPU_SETUP),
    ("DistBackendError", "NCCL error in: ProcessGroupNCCL.cpp:3690, invalid usage\nDuplicate GPU detected : rank 1 and "
     "rank 0 both on CUDA device 1000", FailureClass.GPU_SETUP),
    # github.com/QwenLM/Qwen3/issues/873
    ("RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
     FailureClass.OUT_OF_MEMORY),
    ("RuntimeError", "cuDNN error: CUDNN_STATUS_ALLOC_FAILED", FailureClass.OUT_OF_MEMORY),
    ("DistBackendError", "NCCL error in: /pytorch/NCCLUtils.hpp:268, unhandled cuda error, NCCL version 2.21.5\n"
     "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'",
     FailureClass.OUT_OF_MEMORY),
    # github.com/pytorch/ci-infra/pull/490
    ("DistBackendError", "NCCL error in: NCCLUtils.hpp:268, unhandled system error, NCCL version 2.21.5\nLast error:\n"
     "Error while creating shared memory segment /dev/shm/nccl-WU88OE (size 9637888), error: No space left on device "
     "(28)", FailureClass.OUT_OF_MEMORY),
    # github.com/tensorflow/tensorflow/issues/7025
    ("InternalError", "Failed copying input tensor from CPU:0 to GPU:0 in order to run Cast: Dst tensor is not "
     "initialized.", FailureClass.OUT_OF_MEMORY),
    ("ResourceExhaustedError", "Graph execution error:\n\nfailed to allocate memory\n\t [[{{node dense/MatMul}}]]",
     FailureClass.OUT_OF_MEMORY),
    # github.com/keras-team/keras/issues/9643
    ("ResourceExhaustedError", "OOM when allocating tensor with shape[128,128,109,109] and type float on "
     "/job:localhost/replica:0/task:0/device:GPU:1 by allocator GPU_1_bfc", FailureClass.OUT_OF_MEMORY),
    # github.com/pytorch/pytorch/issues/108861
    ("RuntimeError", "DataLoader worker (pid 11011) is killed by signal: Bus error. It is possible that dataloader's "
     "workers are out of shared memory. Please try to raise your shared memory limit.", FailureClass.OUT_OF_MEMORY),
    ("RuntimeError", "DataLoader worker (pid 5) is killed by signal: Killed. ", FailureClass.OUT_OF_MEMORY),
    ("DistBackendError", "NCCL error in: NCCLUtils.hpp:275, unhandled system error\nLast error:\nError while creating "
     "shared memory segment /dev/shm/nccl-PqWxAB (size 9637888), error: No space left on device (28)",
     FailureClass.OUT_OF_MEMORY),
    ("RuntimeError", "unable to write to file </torch_18692_1954506624>: No space left on device (28)",
     FailureClass.OUT_OF_MEMORY),
    ("RuntimeError", "CUDA error: device-side assert triggered", FailureClass.USER_ERROR),
    # github.com/haotian-liu/LLaVA/issues/392 and WangYueFt/dgcnn/issues/90
    ("RuntimeError", "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", FailureClass.USER_ERROR),
    ("RuntimeError", "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(...)`",
     FailureClass.USER_ERROR),
    ("DistBackendError", "NCCL error: remote process exited or there was a network error\nncclRemoteError: A call "
     "failed possibly due to a network error", FailureClass.COLLECTIVE_TIMEOUT),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "message", "failure_class"), EXCEPTIONS)
def test_exceptions(kind: str, message: str, failure_class: FailureClass) -> None:
    report = diagnose(raised(kind, message), "algo-1")
    assert (report.failure_class, report.exception_type) == (failure_class, kind)
    assert report.hint
    assert is_consequence(report) == (failure_class == FailureClass.COLLECTIVE_TIMEOUT)


def test_a_mistake_that_mentions_a_lost_gpu() -> None:
    report = diagnose(raised("KeyError", "'GPU is lost'"), "algo-1")
    assert (report.failure_class, report.hint) == (FailureClass.USER_ERROR, "")


@pytest.mark.parametrize(
    ("killed_by", "hint"), [("Bus error. It is possible that", "shm_size"), ("Killed. ", "num_workers")]
)
def test_a_worker_that_ends_while_the_loader_waits_for_it(killed_by: str, hint: str) -> None:
    """PyTorch then raises a second error because of the first; which of them it is depends on the moment."""
    first = f"RuntimeError: DataLoader worker (pid 7023) is killed by signal: {killed_by}"
    last = "DataLoader worker (pid(s) 7023, 7024) exited unexpectedly"
    chain = f"{first}\n\nThe above exception was the direct cause of the following exception:\n\nRuntimeError: {last}"
    record = RankRecord(1, 0, 1, "RuntimeError", last, chain, 101.0)
    report = diagnose(RankExit(0, 1, 101.0, record), "algo-1")
    assert (report.failure_class, report.message) == (FailureClass.OUT_OF_MEMORY, last)
    assert hint in report.hint
    alone = diagnose(raised("RuntimeError", last), "algo-1")
    assert (alone.failure_class, alone.hint) == (FailureClass.USER_ERROR, "")


@pytest.mark.parametrize(
    "case", [name for name, row in ABORTED.items() if row[1] == FailureClass.COLLECTIVE_TIMEOUT]
)
def test_the_watchdog_never_hides_the_cause(case: str) -> None:
    abort = diagnose(aborted(ABORTED[case][0]), "algo-1")
    cause = diagnose(raised("ValueError", "bad sample", rank=1), "algo-2")
    assert abort.time and cause.time
    assert abort.time < cause.time
    failures = Failures()
    failures.add(abort)
    failures.add(cause)
    assert failures.cause().message == "bad sample"


def kernel_log(folder: Path, *records: tuple[float, str]) -> str:
    """A file with records of the kernel's log, each a number of seconds from now."""
    path = folder / "kmsg"
    lines = [
        f"4,{number},{int((time.monotonic() + ago) * 1e6)},-;{text}\n"
        for number, (ago, text) in enumerate(records)
    ]
    path.write_text("".join(lines))
    return str(path)


def test_xids_of_the_kernel_log_explain_a_failure(tmp_path: Path) -> None:
    path = kernel_log(
        tmp_path,
        (-900.0, "NVRM: Xid (PCI:0000:53:00): 48, pid=1, an earlier job"),
        (-1.0, "EXT4-fs (nvme0n1p1): mounted filesystem"),
        (
            -0.5,
            "NVRM: Xid (PCI:0000:53:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        ),
        (-0.4, "NVRM: Xid (PCI:0000:53:00): 45, pid=77, name=python, Ch 00000008"),
    )
    faults = gpu_faults(time.monotonic() - 60, path)
    assert faults.count("\n") == 1
    report = diagnose(raised("AcceleratorError", "CUDA error: unknown error"), "algo-1", gpu_faults=faults)
    assert report.failure_class == FailureClass.GPU_FAULT
    assert report.message.startswith("NVRM: Xid (PCI:0000:53:00): 79")
    assert "Xid 79" in report.hint


def test_xids_that_programs_cause_explain_nothing(tmp_path: Path) -> None:
    faults = gpu_faults(
        time.monotonic() - 60, kernel_log(tmp_path, (0.0, "NVRM: Xid (PCI:0000:53:00): 31, pid=77"))
    )
    report = diagnose(raised("ValueError", "bad sample"), "algo-1", gpu_faults=faults)
    assert (report.failure_class, report.message) == (FailureClass.USER_ERROR, "bad sample")


ROWS_REMAPPED = (
    "NVRM: Xid (PCI:0000:53:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked"
)
"""The GPU still works; it may be that of another job."""


@pytest.mark.parametrize(
    ("rank_exit", "memory_kills", "expected"),
    [
        (("ValueError", "bad sample"), 0, FailureClass.USER_ERROR),
        (("SyntaxError", "invalid syntax (cuda.py, line 3)"), 0, FailureClass.SYNTAX_ERROR),
        (("ImportError", "libcudnn.so.8: cannot open shared object file"), 0, FailureClass.IMPORT_ERROR),
        (("AttributeError", "module 'torch.cuda' has no attribute 'sync'"), 0, FailureClass.USER_ERROR),
        (("OSError", "[Errno 28] No space left on device: 'nccl.log'"), 0, FailureClass.DISK_FULL),
        (
            ("RuntimeError", "Expected all tensors to be on the same device, but found cuda:0 and cpu!"),
            0,
            FailureClass.USER_ERROR,
        ),
        (("FileNotFoundError", "[Errno 2] No such file or directory: 'a'"), 0, FailureClass.MISSING_DATA),
        (
            RankExit(0, 2, 0.0, log_tail=("train.py: error: unrecognized arguments: --x",)),
            0,
            FailureClass.USER_ERROR,
        ),
        (RankExit(0, -9, 0.0), 1, FailureClass.OUT_OF_MEMORY),
        (RankExit(0, -9, 0.0), 0, FailureClass.GPU_FAULT),
        (RankExit(0, -6, 0.0), 0, FailureClass.GPU_FAULT),
        (RankExit(0, 134, 0.0), 0, FailureClass.GPU_FAULT),
        (("CollectiveError", "allreduce of g: timed out"), 0, FailureClass.GPU_FAULT),
        (("InternalError", "Failed to launch a kernel on the GPU"), 0, FailureClass.GPU_FAULT),
        (RankExit(0, 1, 0.0, log_tail=("CUDA error: unknown error",)), 0, FailureClass.GPU_FAULT),
    ],
)
def test_xids_explain_only_what_a_gpu_can_have_caused(
    rank_exit: RankExit | tuple[str, str], memory_kills: int, expected: FailureClass
) -> None:
    ended = rank_exit if isinstance(rank_exit, RankExit) else raised(*rank_exit)
    report = diagnose(ended, "algo-1", memory_kills=memory_kills, gpu_faults=ROWS_REMAPPED)
    assert report.failure_class == expected
    assert ("Xid" in report.message) == (expected == FailureClass.GPU_FAULT)


def test_the_gpus_of_this_host_are_named_before_those_of_the_kernel_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = kernel_log(tmp_path, (0.0, "NVRM: Xid (PCI:0000:53:00): 79, pid=1, GPU has fallen off the bus."))
    monkeypatch.setattr("cloudtrain.runtime.diagnose.machine_faults.gpu_faults.__defaults__", (path,))
    faults = gpu_faults_of([("GPU-1", 45), ("GPU-2", 48), ("GPU-2", 63)], time.monotonic() - 60)
    report = diagnose(raised("AcceleratorError", "CUDA error: unknown error"), "algo-1", gpu_faults=faults)
    assert report.failure_class == FailureClass.GPU_FAULT
    assert report.message == "NVRM: Xid (GPU-2): 48, an uncorrectable error of its memory"
    assert report.hint.startswith(
        "The driver reported Xid 48 of GPU-2: an uncorrectable error of its memory. "
    )
    assert report.hint.endswith("if the fault returns, replace the GPU.")


@pytest.mark.parametrize("number", [number for number, xid in XIDS.items() if not xid.is_of_hardware])
def test_xids_of_programs_are_in_the_hint(number: int) -> None:
    faults = gpu_faults_of([("GPU-1", number)], time.monotonic())
    report = diagnose(raised("AcceleratorError", "CUDA error: unknown error"), "algo-1", gpu_faults=faults)
    assert (report.failure_class, report.message) == (FailureClass.USER_ERROR, "CUDA error: unknown error")
    assert f"The driver reported Xid {number} of GPU-1: " in report.hint
    unrelated = diagnose(raised("ValueError", "bad sample"), "algo-1", gpu_faults=faults)
    assert "Xid" not in unrelated.hint


def test_a_xid_that_is_not_known_explains_nothing() -> None:
    faults = gpu_faults_of([("GPU-1", 9999)], time.monotonic())
    report = diagnose(raised("AcceleratorError", "CUDA error: unknown error"), "algo-1", gpu_faults=faults)
    assert report.failure_class == FailureClass.USER_ERROR and "Xid" not in report.hint


def test_a_kernel_log_that_cannot_be_read(tmp_path: Path) -> None:
    assert gpu_faults(0.0, str(tmp_path / "absent")) == ""
