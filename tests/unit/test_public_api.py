"""The public names. A change that adds, renames or removes one also changes this table."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cloudtrain

PUBLIC = {
    "cloudtrain": """
        CategoricalParameter Checkpointer CloudtrainError CollectionConfig ContinuousParameter DebuggerHookConfig
        Estimator FailureClass FailureReport FileSystemInput HuggingFace HyperbandStrategyConfig
        HyperparameterTuner InstanceConfig InstanceGroup InstancePreference IntegerParameter
        InvalidJob Job JobStatus MXNet MlflowConfig ModelPackageConfig
        Profiler ProfilerConfig PyTorch SKLearn Session ShuffleConfig StrategyConfig Sweep
        TensorBoardOutputConfig TensorFlow TrainingFailed TrainingInput TrainingJob TrainingJobAnalytics
        TuningJobCompletionCriteriaConfig
        WarmStartConfig WarmStartTypes XGBoost __version__ get_execution_role image_uris log
        upload_data
    """,
    "cloudtrain.aws": """
        Aws aws_errors error_code owner_of
    """,
    "cloudtrain.checkpoint": """
        Checkpoint Checkpointer Shard is_checkpoint_key
    """,
    "cloudtrain.checkpoint.format": "",
    "cloudtrain.checkpoint.memory": "",
    "cloudtrain.checkpoint.sharded": "",
    "cloudtrain.checkpoint.store": "",
    "cloudtrain.checkpoint.tensors": "",
    "cloudtrain.cli": """
        cli main
    """,
    "cloudtrain.contract": """
        FailureClass FailureReport Host JobStatus Launcher Notice PREEMPTED Paths RankSlot SPOT_VARIABLE
        Settings SourceLimits cpu_count decode_arguments decode_hyperparameters encode_arguments encode_hyperparameters
        expand gpu_count host_hyperparameters placeholder_channels read_document script_environment to_arguments
        user_hyperparameters
    """,
    "cloudtrain.data": "",
    "cloudtrain.cost": """
        Cost Price PriceRow Where currency_of find_price known_prices
    """,
    "cloudtrain.distributed": """
        CollectiveError GradientOrderError HostsUpdatedInterrupt InvalidArgument NotInitialized ProcessSet
        World shard_indices
    """,
    "cloudtrain.distributed.keras": """
        Adasum Average CollectiveError Compression DistributedOptimizer HorovodInternalError InvalidArgument
        NotInitialized PartialDistributedOptimizer ProcessSet Sum add_process_set allgather allgather_object
        allreduce barrier broadcast broadcast_global_variables broadcast_object broadcast_variables
        callbacks ccl_built cross_rank cross_size cuda_built ddl_built global_process_set gloo_built
        gloo_enabled init is_homogeneous is_initialized load_model local_rank local_size mpi_built
        mpi_enabled mpi_threads_supported nccl_built rank reducescatter remove_process_set rocm_built
        shutdown size start_timeline stop_timeline
    """,
    "cloudtrain.distributed.mxnet": """
        Adasum Average CollectiveError Compression Compressor DistributedOptimizer DistributedTrainer
        HorovodInternalError InvalidArgument InvalidSplits Max Min NotInitialized ProcessSet Product
        ReduceOp Sum add_process_set allgather allgather_object allreduce allreduce_ alltoall barrier
        broadcast broadcast_ broadcast_object broadcast_parameters ccl_built cross_rank cross_size
        cuda_built ddl_built global_process_set gloo_built gloo_enabled grouped_allgather grouped_allreduce
        grouped_allreduce_ grouped_reducescatter init is_homogeneous is_initialized join local_rank
        local_size mpi_built mpi_enabled mpi_threads_supported nccl_built process_set_by_id rank
        reducescatter remove_process_set rocm_built shutdown size start_timeline stop_timeline
    """,
    "cloudtrain.distributed.negotiation": """
    """,
    "cloudtrain.distributed.numpy": """
        Adasum Average CollectiveError Handle HorovodInternalError InvalidArgument Max Min NotInitialized
        ProcessSet Product ReduceOp Sum add_process_set allgather allgather_async allgather_object allreduce
        allreduce_ allreduce_async allreduce_async_ alltoall alltoall_async barrier broadcast broadcast_
        broadcast_async broadcast_async_ broadcast_object cross_rank cross_size global_process_set
        grouped_allgather grouped_allgather_async grouped_allreduce grouped_allreduce_
        grouped_allreduce_async grouped_allreduce_async_ grouped_reducescatter grouped_reducescatter_async
        init is_homogeneous is_initialized join local_rank local_size poll process_set_by_id rank
        reducescatter reducescatter_async remove_process_set shutdown size start_timeline stop_timeline
        synchronize
    """,
    "cloudtrain.distributed.tensorflow": """
        Adasum Average BroadcastGlobalVariablesHook CollectiveError Compression Compressor
        DistributedGradientTape DistributedOptimizer HorovodInternalError InvalidArgument Max Min
        NotInitialized PartialDistributedGradientTape ProcessSet Product ReduceOp Sum add_process_set
        allgather allgather_object allreduce alltoall barrier broadcast broadcast_
        broadcast_global_variables broadcast_object broadcast_object_fn broadcast_variables ccl_built
        cross_rank cross_size cuda_built ddl_built global_process_set gloo_built gloo_enabled
        grouped_allgather grouped_allreduce grouped_reducescatter init is_homogeneous is_initialized join
        local_rank local_rank_op local_size local_size_op mpi_built mpi_enabled mpi_threads_supported
        nccl_built process_set_by_id process_set_included_op rank rank_op reducescatter remove_process_set
        rocm_built shutdown size size_op start_timeline stop_timeline
    """,
    "cloudtrain.distributed.tensorflow.keras": """
        Adasum Average CollectiveError Compression DistributedOptimizer HorovodInternalError InvalidArgument
        NotInitialized PartialDistributedOptimizer ProcessSet Sum add_process_set allgather allgather_object
        allreduce barrier broadcast broadcast_global_variables broadcast_object broadcast_variables
        callbacks ccl_built cross_rank cross_size cuda_built ddl_built global_process_set gloo_built
        gloo_enabled init is_homogeneous is_initialized load_model local_rank local_size mpi_built
        mpi_enabled mpi_threads_supported nccl_built rank reducescatter remove_process_set rocm_built
        shutdown size start_timeline stop_timeline
    """,
    "cloudtrain.distributed.torch": """
        Adasum Average CollectiveError Compression Compressor DistributedOptimizer GradientOrderError Handle
        HorovodInternalError InvalidArgument Max Min NotInitialized ProcessSet Product ReduceOp Sum
        SyncBatchNorm add_process_set allgather allgather_async allgather_object allreduce allreduce_
        allreduce_async allreduce_async_ alltoall alltoall_async average_metrics barrier broadcast
        broadcast_ broadcast_async broadcast_async_ broadcast_object broadcast_object_fn
        broadcast_optimizer_state broadcast_parameters ccl_built cross_rank cross_size cuda_built ddl_built
        elastic global_process_set gloo_built gloo_enabled grouped_allgather grouped_allgather_async
        grouped_allreduce grouped_allreduce_ grouped_allreduce_async grouped_allreduce_async_
        grouped_reducescatter grouped_reducescatter_async init is_homogeneous is_initialized join local_rank
        local_size mpi_built mpi_enabled mpi_threads_supported nccl_built poll process_set_by_id rank
        reducescatter reducescatter_async remove_process_set rocm_built same_order shutdown size
        sparse_allreduce_async start_timeline stop_timeline synchronize
    """,
    "cloudtrain.distributed.torch.elastic": """
        ElasticSampler HostsUpdatedInterrupt ObjectState State TorchState run
    """,
    "cloudtrain.engine": """
        Bind Engine EngineClient Spec engine_errors find_engine find_engines
    """,
    "cloudtrain.link": "",
    "cloudtrain.environment": """
        Notice channel checkpoint_uri exit_if_preempted hyperparameters in_job job_name model_dir
        output_data_dir preemption rank world_size
    """,
    "cloudtrain.errors": """
        AccessDenied CheckpointError CloudtrainError InDoubt InvalidJob InvalidSource JobExists JobNotFound NotFound
        NotSupported PlatformError StorageError TrainingFailed UnknownPlatform Unreachable nearest
    """,
    "cloudtrain.history": """
        MetricRange PastJob query
    """,
    "cloudtrain.images": """
        AUTO BuildOptions EcrImage Flavour LocalImage Registry build_image ecr_image ecr_images ecr_registry
        find_flavour find_local flavour_of flavours local_image make_ecr_repository push_image
    """,
    "cloudtrain.index": """
        IndexEntry add_job changes find_job found_in_state insert is_whole list_jobs list_rows remember_found
        remove_job remove_submission rows_named set_parameters to_number when_submitted
    """,
    "cloudtrain.observe": """
        EventLog Goodput GpuSample Sample Summary beat commits committing loading_data own_progress parse_event
        parse_events read_events report_step summarize
    """,
    "cloudtrain.observe.timeline": """
        Offset RankStep Step Timeline Trace align find_steps merge read_trace
    """,
    "cloudtrain.optimizers": """
    """,
    "cloudtrain.packaging": """
        GitState RUNTIME_FILE RuntimeArchive SourceArchive check_entry_point pack pack_runtime
        runtime_sha256
    """,
    "cloudtrain.pipelines": """
        TrainingStep
    """,
    "cloudtrain.plan": "",
    "cloudtrain.platforms": """
        AccountStorage Arrays Change Check CheckStatus Downloads Events Export Finding HostOffer HostState
        JobDescription JobState JobWarnings Metrics Naming Notifications Offers Outlines
        PendingOutputs Places Platform Preemption Preflight Prices Request Requests Resolver Resubmission Series Stacks
        States Summaries Upkeep
        WarmUp Withdrawal changes fields get_platform job_checks platform_names print_states run_checks
    """,
    "cloudtrain.platforms.common": """
    """,
    "cloudtrain.platforms.container": """
        ContainerPlatform Engine find_engine
    """,
    "cloudtrain.platforms.hosts": "HostsPlatform",
    "cloudtrain.platforms.batch": "",
    "cloudtrain.platforms.lsf": "LsfPlatform",
    "cloudtrain.platforms.pbs": "CobaltPlatform PbsPlatform TorquePlatform",
    "cloudtrain.platforms.kubernetes": "KubernetesPlatform",
    "cloudtrain.platforms.kubernetes.api": "",
    "cloudtrain.platforms.kubernetes.doctor": "",
    "cloudtrain.platforms.kubernetes.life": "",
    "cloudtrain.platforms.kubernetes.render": "",
    "cloudtrain.platforms.slurm": "SlurmPlatform",
    "cloudtrain.platforms.local": """
        LocalPlatform
    """,
    "cloudtrain.platforms.sagemaker": """
        SageMakerPlatform
    """,
    "cloudtrain.platforms.sagemaker.queue": "",
    "cloudtrain.platforms.sagemaker.doctor": """
        checks
    """,
    "cloudtrain.platforms.supervised": """
        Continuation FolderHosts HostLauncher Hosts JobFiles JobFolder JobRecord JobRoot RunningHost
        SupervisedPlatform supervise
    """,
    "cloudtrain.runtime": """
        main
    """,
    "cloudtrain.runtime.diagnose": "",
    "cloudtrain.runtime.diagnose.hints": "",
    "cloudtrain.runtime.foreground": "",
    "cloudtrain.runtime.inputs": "",
    "cloudtrain.runtime.launchers": "",
    "cloudtrain.runtime.notifications": "",
    "cloudtrain.runtime.outputs": "",
    "cloudtrain.runtime.sampling": "",
    "cloudtrain.runtime.batch": "",
    "cloudtrain.runtime.slurm": "",
    "cloudtrain.runtime.start": "",
    "cloudtrain.runtime.supervisor": "",
    "cloudtrain.sagemaker": """
        HyperparameterTuningJobAnalytics LocalSession Profiler ProfilerConfig Session TrainingInput
        TrainingJobAnalytics get_execution_role
    """,
    "cloudtrain.sagemaker.debugger": """
        CollectionConfig DataloaderProfilingConfig DebuggerHookConfig DetailedProfilingConfig FrameworkProfile
        HorovodProfilingConfig Profiler ProfilerConfig ProfilerRule PythonProfiler PythonProfilingConfig Rule
        SMDataParallelProfilingConfig TensorBoardOutputConfig cProfileTimer rule_configs
    """,
    "cloudtrain.sagemaker.huggingface": """
        HuggingFace
    """,
    "cloudtrain.sagemaker.local": """
        LocalSession
    """,
    "cloudtrain.sagemaker.mxnet": """
        MXNet
    """,
    "cloudtrain.sagemaker.pytorch": """
        PyTorch
    """,
    "cloudtrain.sagemaker.tensorflow": """
        TensorFlow
    """,
    "cloudtrain.sagemaker.sklearn": """
        SKLearn
    """,
    "cloudtrain.sagemaker.xgboost": """
        XGBoost
    """,
    "cloudtrain.spec": """
        DEFAULT_MAX_RUN
        Agent Channel CollectionConfig CostTerms DataParallel DebuggerHookConfig Distribution FIELDS FileSystemInput
        Horovod InstanceGroup InstancePreference MlflowConfig ModelPackageConfig ModelParallel Mpi
        MultiWorkerMirrored ParameterServer Processes Profiler ProfilerConfig PytorchDdp PytorchXla
        REDACTED RULE_SOURCE RUNTIMES Rule ShuffleConfig SmDistributed Source TensorBoardOutputConfig TorchDistributed
        TrainingCompilerConfig TrainingInput TrainingJob apply_overrides base_name check_job_name convert is_secret
        is_secret_name new_job_name parse_yaml read_job_file redact
    """,
    "cloudtrain.storage": """
        FileStore ObjectInfo Progress S3Store Select Store download_tree join_uri list_folder list_tree
        open_store split_uri state_home upload_tree uri_scheme uri_to_path
    """,
    "cloudtrain.sweep": """
        StartedSweep Sweep
    """,
    "cloudtrain.testing": """
        FakePlatform S3Daemon S3Server running_s3 start_s3 stop_s3
    """,
    "cloudtrain.tuning": """
        CategoricalParameter ContinuousParameter HyperbandStrategyConfig HyperparameterTuner InstanceConfig
        IntegerParameter StrategyConfig TuningJob TuningJobAnalytics TuningJobCompletionCriteriaConfig
        WarmStartConfig WarmStartTypes
    """,
    "cloudtrain.watch": "",
    "cloudtrain.watch.dashboard": "Address serve",
    "cloudtrain.watch.top": "",
    "cloudtrain.watch.report": "Gathered gather gather_from render write write_report",
}

ELSEWHERE = re.compile(r"\b(keras|mxnet|tensorflow)\b")
"""Modules that need a library from another environment, where other tests use their names."""

LIBRARIES = {"boto3", "click", "msgspec", "numpy", "pathspec", "rich", "torch", "yaml"}


@pytest.mark.parametrize("name", PUBLIC)
def test_names_are_these(name: str) -> None:
    if ELSEWHERE.search(name):
        assert _written_names(name) == sorted(PUBLIC[name].split())
        return
    module = importlib.import_module(name)
    own = [
        key
        for key, value in vars(module).items()
        if not key.startswith("_") and getattr(value, "__module__", None) == name
    ]
    names = getattr(module, "__all__", own)
    assert sorted(names) == sorted(PUBLIC[name].split())
    for public in names:
        assert getattr(module, public) is not None


def test_packages_are_attributes_of_cloudtrain() -> None:
    names = (
        "checkpoint",
        "distributed",
        "environment",
        "observe",
        "optimizers",
        "pipelines",
        "sagemaker",
        "testing",
    )
    code = f"import cloudtrain\nfor name in {names}: print(getattr(cloudtrain, name).__name__)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == [f"cloudtrain.{name}" for name in names]


def _written_names(module: str) -> list[str]:
    """``__all__`` as written in the source: a list of names, extended by ``+= other.__all__``."""
    path = Path(*cloudtrain.__path__, *module.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    names: list[str] = []
    imported: dict[str, str] = {}
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.ImportFrom):
            imported |= {
                each.asname or each.name: f"{statement.module}.{each.name}" for each in statement.names
            }
        elif isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            names += ast.literal_eval(statement.value)
        elif isinstance(statement, ast.AugAssign) and ast.unparse(statement.target) == "__all__":
            other, attribute = ast.unparse(statement.value).split(".")
            assert attribute == "__all__"
            names += _written_names(imported[other])
    assert names, f"{path} has no __all__"
    return sorted(set(names))


def _can_be_elsewhere(package: str) -> None:
    """Called for a package that cannot be imported, in the place of a look into it."""
    assert ELSEWHERE.search(package), package


def test_every_package_is_in_the_table() -> None:
    packages = {
        found.name
        for found in pkgutil.walk_packages(cloudtrain.__path__, "cloudtrain.", onerror=_can_be_elsewhere)
        if found.ispkg and "._" not in found.name
    }
    assert packages - set(PUBLIC) == set()


@pytest.mark.parametrize(
    ("name", "unneeded"),
    [
        ("cloudtrain", LIBRARIES),
        ("cloudtrain.sagemaker", LIBRARIES),
        ("cloudtrain.sagemaker.pytorch", {"boto3", "botocore", "pandas", "click", "numpy", "rich", "torch"}),
        (
            "cloudtrain.frameworks",
            {"boto3", "cloudtrain.aws", "cloudtrain.contract.agent", "cloudtrain.packaging.git_clone"},
        ),
        ("cloudtrain.distributed", LIBRARIES),
        ("cloudtrain.checkpoint", LIBRARIES),
        ("cloudtrain.__main__", {*LIBRARIES, "cloudtrain.cli"}),
        (
            "cloudtrain.cli",
            {"click", "cloudtrain.contract.host", "cloudtrain.spec", "difflib", "logging", "socket"},
        ),
        ("cloudtrain.cli._run", {*LIBRARIES, "click", "cloudtrain.spec", "difflib", "logging"}),
        (
            "cloudtrain.runtime.entrypoint",
            {*LIBRARIES, "cloudtrain.link.tls", "ctypes", "difflib", "logging", "ssl"},
        ),
    ],
)
def test_import_loads_nothing_unneeded(name: str, unneeded: set[str]) -> None:
    code = f"import {name}, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=240
    )
    assert unneeded & set(done.stdout.split()) == set()
