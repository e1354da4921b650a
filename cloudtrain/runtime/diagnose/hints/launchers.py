"""Variables that a launcher sets and a job without a distribution does not have."""

from __future__ import annotations

from cloudtrain.runtime.diagnose.hints.table import Hint

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

HINTS = (
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
