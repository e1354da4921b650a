"""All names of horovod.tensorflow 0.28.1 and its Keras modules exist, with the same parameters in the same order."""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from pathlib import Path

import cloudtrain

REDUCED = "op prescale_factor postscale_factor"
OPTIONS = "sparse_as_dense op gradient_predivide_factor num_groups groups process_set"
OPTIMIZER = (
    "optimizer name device_dense device_sparse compression sparse_as_dense gradient_predivide_factor op"
)
WORLD = (
    "init shutdown is_initialized start_timeline stop_timeline size local_size cross_size rank local_rank cross_rank "
    "mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built nccl_built ddl_built ccl_built cuda_built "
    "rocm_built Average Sum Adasum Compression elastic"
)
CALLBACKS = (
    "BroadcastGlobalVariablesCallback MetricAverageCallback LearningRateScheduleCallback "
    "LearningRateWarmupCallback BestModelCheckpoint"
)
ELASTIC = "KerasState CommitStateCallback UpdateBatchStateCallback UpdateEpochStateCallback run"
OF_TENSORFLOW = {
    "allreduce": f"tensor average device_dense device_sparse compression {REDUCED} name process_set ignore_name_scope",
    "grouped_allreduce": f"tensors average device_dense device_sparse compression {REDUCED} process_set "
    "ignore_name_scope name",
    "allgather": "tensor name ignore_name_scope process_set",
    "grouped_allgather": "tensors name ignore_name_scope process_set",
    "broadcast": "tensor root_rank name ignore_name_scope process_set",
    "broadcast_": "variables root_rank name process_set",
    "alltoall": "tensor splits name ignore_name_scope process_set",
    "reducescatter": "tensor device_dense compression op name process_set ignore_name_scope prescale_factor "
    "postscale_factor",
    "grouped_reducescatter": "tensors device_dense compression op process_set prescale_factor postscale_factor",
    "broadcast_variables": "variables root_rank process_set inplace",
    "broadcast_global_variables": "root_rank",
    "BroadcastGlobalVariablesHook": "root_rank device",
    "broadcast_object": "obj root_rank session name process_set",
    "broadcast_object_fn": "root_rank session name process_set",
    "allgather_object": "obj session name process_set",
    "size_op": "process_set_id name",
    "rank_op": "name",
    "local_size_op": "name",
    "local_rank_op": "name",
    "process_set_included_op": "process_set_id name",
    "DistributedGradientTape": f"gradtape device_dense device_sparse compression {OPTIONS} scale_local_gradients",
    "PartialDistributedGradientTape": f"gradtape device_dense device_sparse compression {OPTIONS} local_layers",
    "DistributedOptimizer": "optimizer name use_locking device_dense device_sparse compression sparse_as_dense "
    "backward_passes_per_step op gradient_predivide_factor average_aggregated_gradients num_groups groups "
    "process_set scale_local_gradients",
    "elastic.TensorFlowState": "variables session",
    "elastic.TensorFlowKerasState": "model optimizer backend",
    "init": "comm process_sets",
    "join": "",
}
OF_KERAS = {
    "DistributedOptimizer": OPTIMIZER,
    "PartialDistributedOptimizer": OPTIMIZER,
    "allreduce": f"value name average prescale_factor postscale_factor {REDUCED.split()[0]} compression",
    "allgather": "value name",
    "broadcast": "value root_rank name",
    "reducescatter": "value name op",
    "broadcast_global_variables": "root_rank",
    "load_model": "filepath custom_optimizers custom_objects compression legacy_opts",
    "callbacks.BroadcastGlobalVariablesCallback": "root_rank device local_variables",
    "callbacks.MetricAverageCallback": "device",
    "callbacks.LearningRateScheduleCallback": "initial_lr multiplier start_epoch end_epoch staircase "
    "momentum_correction steps_per_epoch",
    "callbacks.LearningRateWarmupCallback": "initial_lr warmup_epochs momentum_correction steps_per_epoch verbose",
    "callbacks.BestModelCheckpoint": "monitor verbose save_weights_only mode save_freq",
}
MODULES = {
    "horovod.tensorflow": f"{WORLD} SyncBatchNormalization Min Max Product ProcessSet global_process_set "
    "add_process_set remove_process_set is_homogeneous",
    "horovod.tensorflow.mpi_ops": "allreduce allgather broadcast size rank init",
    "horovod.tensorflow.functions": "allgather_object broadcast_object broadcast_object_fn broadcast_variables",
    "horovod.tensorflow.compression": "Compression Compressor NoneCompressor FP16Compressor",
    "horovod.tensorflow.elastic": "TensorFlowState TensorFlowKerasState run",
    "horovod.tensorflow.keras": WORLD,
    "horovod.tensorflow.keras.callbacks": CALLBACKS,
    "horovod.tensorflow.keras.elastic": ELASTIC,
    "horovod.keras": WORLD,
    "horovod.keras.callbacks": CALLBACKS,
    "horovod.keras.elastic": ELASTIC,
}


def case_names_of_horovod() -> None:
    sys.path.append(str(Path(cloudtrain.__file__).with_name("alias")))
    for module, names in MODULES.items():
        missing = [name for name in names.split() if not hasattr(import_module(module), name)]
        assert not missing, f"{module} lacks {missing}"


def case_public_names_exist() -> None:
    for name in ("tensorflow", "keras", "keras.callbacks", "keras.elastic"):
        for module in {name, f"tensorflow.{name}".replace("tensorflow.tensorflow", "tensorflow")}:
            found = import_module(f"cloudtrain.distributed.{module}")
            missing = [public for public in found.__all__ if getattr(found, public, None) is None]
            assert not missing, f"{module} lacks {missing}"


def case_both_keras_modules_export_the_same_names() -> None:
    for name in ("keras", "keras.callbacks", "keras.elastic"):
        keras_3 = import_module(f"cloudtrain.distributed.{name}")
        tf_keras = import_module(f"cloudtrain.distributed.tensorflow.{name}")
        assert sorted(keras_3.__all__) == sorted(tf_keras.__all__)


def case_parameters_of_horovod() -> None:
    for module, functions in (
        ("horovod.tensorflow", OF_TENSORFLOW),
        ("horovod.keras", OF_KERAS),
        ("horovod.tensorflow.keras", OF_KERAS),
    ):
        for path, parameters in functions.items():
            found = import_module(module)
            for name in path.split("."):
                found = getattr(found, name)
            wanted = parameters.split()
            given = list(inspect.signature(found).parameters)
            assert given[: len(wanted)] == wanted, f"{module}.{path} takes {given}"
