"""The rows of the table that `run` prints, each with its benchmark, the peer for the comparison, and the goal."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

from _common import MORE_IS_BETTER, OURS, Figure


@dataclass(frozen=True)
class Row:
    """A figure of cloudtrain, and the same figure of a peer."""

    name: str
    what: str
    """The `Figure.what` of both figures."""
    peer: str = ""
    """The prefix of the peer's name; empty if there is no peer."""
    ours: str = OURS
    limit: float | None = None
    """The goal for cloudtrain's figure, in its unit: an upper limit, or a lower limit if more is better."""
    times: float | None = None
    """The goal for the ratio: the least number of times that cloudtrain is better than the peer."""

    @property
    def wanted(self) -> str:
        parts = []
        if self.limit is not None:
            parts.append(f"{self.limit:g}")
        if self.times is not None:
            parts.append(f"{self.times:g} x")
        return ", ".join(parts)

    def is_met(self, ours: Figure, peer: Figure | None) -> bool | None:
        """Whether the goals are met; None if there are none, or if the peer is missing."""
        found = []
        if self.limit is not None:
            more = ours.unit in MORE_IS_BETTER
            found.append(ours.median >= self.limit if more else ours.median <= self.limit)
        if self.times is not None:
            ratio = peer.ratio(ours) if peer else None
            if ratio is None:
                return False if False in found else None
            found.append(ratio >= self.times)
        return all(found) if found else None


@dataclass(frozen=True)
class Benchmark:
    """A command, and the rows for its figures."""

    command: str
    quick: str | None = None
    """Its options in `run --quick`; None if it does not run there."""
    rows: tuple[Row, ...] = ()
    minutes: float = 1.0
    """The approximate duration of a whole run."""

    @property
    def title(self) -> str:
        script, *parts = self.command.partition(" --")[0].split()
        words = f"{script.removesuffix('.py').removeprefix('on_')} {', '.join(parts)}".replace(
            "_", " "
        ).strip()
        return words[0].upper() + words[1:]

    def matches(self, pattern: str) -> bool:
        """Whether its command or the name of a row matches a shell pattern, or contains it."""
        names = (self.command, *(row.name for row in self.rows))
        return any(fnmatch.fnmatch(name, pattern) or pattern in name for name in names)


SDK_2, SDK_3 = "sagemaker==2", "sagemaker==3"
ESTIMATOR = "from cloudtrain import Estimator: CPU"
HELP = "cloudtrain --help: CPU"
SWEEP = "sweep of 1000 trials"
ONE, TWO = "first line, one rank", "first line, two ranks"
PACK = "pack 2,000 files / 50 MB"
IN_ORDER = "cloudtrain, same_order"
LARGE = "submit 2,000 files / 50 MB, first time"
CHANGED = "submit a script that has changed"
MLP, RESNET = "MLP, 5.2 M parameters, batch 64", "ResNet-20 x2, 1.1 M parameters, batch 16"
DEEP = "MLP of 65 layers, 1.1 M parameters, batch 32"
STATE = "checkpoint of 1024 MiB"
LOGGED = "step of 10 ms that logs 100 values"
KUBE = "submit a script to Kubernetes"

BENCHMARKS = (
    Benchmark(
        "start.py imports",
        "--runs 5",
        (
            Row(
                "import cloudtrain, above Python", "import cloudtrain: CPU above Python", "torchx", limit=0.1
            ),
            Row("import Estimator, above Python", f"{ESTIMATOR} above Python", "torchx", limit=0.06, times=1),
            Row("import Estimator, SDK 2", ESTIMATOR, SDK_2, times=10),
            Row("import Estimator, SDK 3", ESTIMATOR, SDK_3, times=10),
            Row("cloudtrain --help", HELP, "torchx", limit=0.15, times=1),
        ),
        2,
    ),
    Benchmark(
        "start.py first_line",
        "--runs 3",
        (
            Row("first line, one rank, torchx", ONE, "torchx", limit=0.17, times=1),
            Row("first line, one rank, submitit", ONE, "submitit", times=1),
            Row("first line, two ranks, torchx", TWO, "torchx", limit=0.22, times=1),
            Row("first line, two ranks, submitit", TWO, "submitit", times=1),
        ),
        2,
    ),
    Benchmark(
        "start.py run",
        "--runs 5",
        (Row("cloudtrain run -np 2", "two ranks in the foreground", "mpirun", limit=0.1),),
        0.2,
    ),
    Benchmark(
        "start.py plan",
        "--runs 5",
        (
            Row("cloudtrain plan, no network", "`cloudtrain plan` without a network", limit=1.0),
            Row("cloudtrain plan, CPU", "`cloudtrain plan` without a network: CPU", limit=0.4),
        ),
        0.2,
    ),
    Benchmark("submit_phases.py", None, (), 0.3),
    Benchmark(
        "regression.py",
        None,
        tuple(
            Row(f"cost of {command}, to the reference", f"cost of `{command}`", limit=1.1)
            for command in (
                "from cloudtrain import Estimator",
                "cloudtrain --help",
                "cloudtrain submit --dry-run",
                "cloudtrain submit",
            )
        ),
        1,
    ),
    Benchmark(
        "collectives.py allreduce",
        "--runs 3",
        (
            Row(
                "allreduce 4 KB, by name", "allreduce of 4 KB", "torch.d", "cloudtrain, by name", 0.0001, 0.95
            ),
            Row("allreduce 4 KB, same order", "allreduce of 4 KB", "mpi4py", IN_ORDER, 0.00002),
            Row(
                "allreduce 1 MB, by name", "allreduce of 1 MB", "torch.d", "cloudtrain, by name", 0.0003, 0.95
            ),
            Row("allreduce 1 MB, same order", "allreduce of 1 MB", "mpi4py", IN_ORDER, 0.00015),
            Row("allreduce 25 MB, same order", "allreduce of 25 MB", "mpi4py", IN_ORDER, times=1),
            Row("allreduce 100 MB, same order", "allreduce of 100 MB", "mpi4py", IN_ORDER, times=1),
        ),
        2,
    ),
    Benchmark("collectives.py small broadcast batch_norm", None, (), 1),
    Benchmark(
        "negotiation.py",
        "--runs 1",
        (
            Row("negotiation, 128 ranks", "negotiation, 128 ranks, one by one: CPU of rank 0", limit=0.0005),
            Row(
                "negotiation, 128 ranks, new names",
                "negotiation, 128 ranks, one by one, new names: CPU of rank 0",
                limit=0.001,
            ),
        ),
        1,
    ),
    Benchmark(
        "training.py step",
        "--runs 2",
        (
            Row("step of an MLP, DDP", f"step of {MLP}", "DDP", times=1),
            Row("step of an MLP, Horovod", f"step of {MLP}", "Horovod", times=1),
            Row("step of a ResNet, DDP", f"step of {RESNET}", "DDP", times=1),
            Row("step of a ResNet, Horovod", f"step of {RESNET}", "Horovod", times=1),
        ),
        1.5,
    ),
    Benchmark(
        "training.py network",
        None,
        tuple(
            Row(
                f"step of {short}, {link} Gbit/s, Horovod",
                f"step of {model}, {link} Gbit/s",
                "Horovod",
                times=1.2,
            )
            for link in (1, 10)
            for short, model in (("an MLP", MLP), ("a ResNet", RESNET), ("a deep MLP", DEEP))
        ),
        4,
    ),
    Benchmark(
        "training.py hooks memory timeline",
        None,
        (
            Row("hooks of 400 parameters", "hooks of 400 parameters, CPU for each", "DDP", times=1),
            Row(
                "copies of the gradients",
                "copies of the gradients, later steps",
                "DDP, gradients as views",
                limit=1,
            ),
            Row("a recorded timeline", f"timeline of {MLP}", "not recorded", "recorded", times=0.97),
        ),
        3,
    ),
    Benchmark("keras_fit.py", None, (Row("step of Keras fit", "step of Keras `fit`", "Multi", times=1),), 2),
    Benchmark(
        "on_mpi_hosts.py",
        None,
        (
            Row(
                "mpirun on two hosts",
                "a trivial mpirun job on two linked hosts",
                "sagemaker-training",
                limit=6,
                times=1,
            ),
        ),
        4,
    ),
    Benchmark(
        "checkpoint.py",
        None,
        (
            Row(
                "stall of a checkpoint, in copies", f"{STATE}: stall, second save, in plain copies", limit=1.2
            ),
            Row("checkpoint until durable", f"{STATE}: durable, second save", "DCP async", times=1),
            Row(
                "extra memory of a checkpoint", f"{STATE}: extra memory of saves", limit=(1024 + 256) * 2**20
            ),
            Row("restore", f"{STATE}: restore", "DCP save", times=1),
        ),
        5,
    ),
    Benchmark(
        "checkpoint_faults.py --kills 40",
        None,
        (
            Row("checkpoints lost", "checkpoints in s3: lost", limit=0),
            Row("checkpoints torn", "checkpoints in s3: torn", limit=0),
        ),
        8,
    ),
    Benchmark(
        "on_sagemaker.py pack",
        "--runs 2",
        (
            Row("pack, first time", f"{PACK}, first time", SDK_2, times=1),
            Row("pack, second time", f"{PACK}, second time", SDK_2, limit=0.3),
        ),
        0.5,
    ),
    Benchmark(
        "on_sagemaker.py submit",
        None,
        (
            Row("submit to SageMaker", CHANGED, SDK_2, times=8),
            Row("submit to SageMaker: CPU", f"{CHANGED}: CPU", SDK_2, times=8),
            Row("submit to SageMaker: AWS calls", f"{CHANGED}: AWS calls", SDK_2, limit=4),
            Row("submit to SageMaker: memory", f"{CHANGED}: memory", SDK_2, times=3),
            Row(
                "first submit in an account: AWS calls",
                "submit for the first time in an account: AWS calls",
                limit=4,
            ),
        ),
        6,
    ),
    Benchmark(
        "on_sagemaker.py large",
        None,
        (
            Row("submit 2,000 files, first time", LARGE, SDK_2, times=3),
            Row("submit 2,000 files, second time", "submit them again", SDK_2, times=20),
            Row("submit 2,000 files: AWS calls", f"{LARGE}: AWS calls", SDK_2, limit=4),
        ),
        6,
    ),
    Benchmark("on_sagemaker.py logs --patience 5", None, (), 2),
    Benchmark(
        "on_containers.py",
        None,
        (
            Row(
                "first line in two containers",
                "first line in two containers",
                "two docker run",
                times=1 / 1.3,
            ),
            Row("two containers, local mode of SDK 2", "first line in two containers", SDK_2, times=3),
            Row(
                "from an edit to running again",
                "first line in two containers",
                "",
                "cloudtrain, after an edit",
                limit=3,
            ),
        ),
        2,
    ),
    Benchmark(
        "output_rate.py",
        "--runs 2",
        (Row("lines of ranks passed on", "lines passed on", ours="ordinary lines"),),
        0.5,
    ),
    Benchmark(
        "sampling.py",
        "--runs 1",
        (
            Row("sampling a host with 8 ranks", "sampling a host with 8 ranks", limit=0.5),
            Row(
                "training step on a host that is sampled",
                "training step on a host that is sampled",
                "without sampling",
                times=0.95,
            ),
            Row(
                "reporting a wait for data in a step of 10 ms",
                "reporting a wait for data in a step of 10 ms",
                limit=1,
            ),
        ),
        6,
    ),
    Benchmark(
        "log_metrics.py",
        "--runs 1",
        (
            Row("log() of one value, TensorBoard", "log() of one value", "TensorBoard", limit=5e-6, times=10),
            Row("log() of one value, wandb", "log() of one value", "wandb", times=10),
            Row("log() of one value, trackio", "log() of one value", "trackio", times=1),
            Row("log() of one value, MLflow", "log() of one value", "MLflow", times=10),
            Row("step with 10,000 values a second: CPU", f"{LOGGED}: CPU", "no log", times=0.99),
            Row("the same, 99th percentile", f"{LOGGED}, 99th percentile", "no log", times=0.95),
            Row(
                "the same in calls of one value: thread of the training",
                "10,000 values a second, 1 in a call: thread",
                limit=1,
            ),
        ),
        2,
    ),
    Benchmark(
        "sweep.py overhead",
        "--runs 1",
        (
            Row(
                "trial of a sweep, random", f"{SWEEP}, random: time of a trial", "Optuna, journal", limit=0.1
            ),
            Row("trial of a sweep, TPE", f"{SWEEP}, tpe: time of a trial", "Optuna, journal", limit=0.2),
            Row("memory of a sweep, TPE", f"{SWEEP}, tpe: memory", "Optuna, in memory", limit=150 * 2**20),
        ),
        8,
    ),
    Benchmark(
        "sweep.py asha",
        "",
        (
            Row(
                "time to a good configuration, ASHA",
                "search for the best 1% of configurations: simulated time",
                "cloudtrain, random",
                ours="cloudtrain, asha",
                times=2,
            ),
        ),
        1,
    ),
    Benchmark(
        "dashboard.py lists",
        "--runs 1",
        (
            Row("dashboard of 10,000 jobs", "dashboard, 10,000 jobs: first page, first", limit=1),
            Row("dashboard of 10,000 jobs, update", "dashboard, 10,000 jobs: states, next", limit=0.2),
            Row("dashboard of 100 jobs", "dashboard, 100 jobs: first page, first", limit=1),
            Row("dashboard of 1 job", "dashboard, 1 jobs: first page, first", limit=1),
            Row("condition over 10,000 jobs, update", "dashboard, 10,000 jobs: condition, next", limit=0.2),
        ),
        1,
    ),
    Benchmark(
        "dashboard.py points",
        None,
        (
            Row("page of 10^6 values, first", "dashboard, 1,000,000 values: page, first", limit=1),
            Row("page of 10^6 values, next", "dashboard, 1,000,000 values: page, next", limit=1),
            Row("plot of 10^6 values", "dashboard, 1,000,000 values: plot, first", limit=1),
        ),
        1,
    ),
    Benchmark(
        "growth.py looks",
        None,
        (
            Row("describe of 10^6 metrics, first", "`describe` of 1,000,000 metrics, first look", limit=0.3),
            Row("list of 10,000 jobs, first", "`cloudtrain list` of 10,000 jobs, first look", limit=1),
            Row("list of 10,000 jobs, next", "`cloudtrain list` of 10,000 jobs, next look", limit=0.2),
            Row("query of 10,000 jobs, first", "`cloudtrain list --where` of 10,000 jobs, first", limit=1),
            Row("query of 10,000 jobs, next", "`cloudtrain list --where` of 10,000 jobs, next", limit=0.3),
            Row("export of 10,000 jobs", "`cloudtrain export` of 10,000 jobs, next", limit=2),
        ),
        1,
    ),
    Benchmark("growth.py jobs", None, (), 3),
    Benchmark("growth.py ranks", None, (), 6),
    Benchmark(
        "on_slurm.py submit",
        "--runs 3",
        (
            Row(
                "submit to an idle Slurm, by hand",
                "submit to the first line on an idle Slurm",
                "a hand",
                times=1 / 1.2,
            ),
            Row(
                "submit to an idle Slurm, submitit",
                "submit to the first line on an idle Slurm",
                "submitit",
                times=1,
            ),
            Row(
                "submit to an idle Slurm, torchx",
                "submit to the first line on an idle Slurm",
                "torchx",
                times=1,
            ),
        ),
        1.5,
    ),
    Benchmark(
        "on_slurm.py ssh watch",
        None,
        (
            Row(
                "a later submit through ssh, handshakes",
                "ssh: a later submission, more than on the login node",
                limit=3,
            ),
        ),
        4,
    ),
    Benchmark(
        "on_kubernetes.py",
        None,
        (
            Row("submit to Kubernetes", KUBE, "kubeflow", times=1),
            Row("submit to Kubernetes: CPU", f"{KUBE}: CPU", "kubeflow", times=1),
            Row("watch 200 pods: requests", "watch 200 pods for 60 s: requests", "kubeflow", times=1),
            Row(
                "lag of 95 % of the lines of 200 pods",
                "logs of 200 pods x 1000 lines, in 60 s, followed: lag of 95 % of the lines",
                "kubectl",
                times=1,
            ),
        ),
        15,
    ),
)
"""The benchmarks in the order in which they run."""
