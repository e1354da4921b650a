"""The callbacks for every Keras. `build_callbacks` derives them from the base classes of a given Keras."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Callable

import numpy as np
import tensorflow as tf

import cloudtrain.distributed.numpy as hvd
from cloudtrain import environment
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.numpy.collectives import reduce_arrays
from cloudtrain.distributed.tensorflow.optimizer import Distributed, variables_of
from cloudtrain.distributed.tensorflow.variables import broadcast_variables

Logs = dict[str, Any]

OF_THE_OPTIMIZER: Any = object()
"""The default of ``initial_lr``: the optimizer's learning rate when training begins, as before Horovod 0.20."""


class BroadcastGlobalVariablesCallback:
    """Overwrites the weights and the optimizer's variables with the root's, after the first batch.

    Before the first batch, the optimizer may not have variables. Random seeds, such as those of dropout, are not
    overwritten.

    Args:
        root_rank: The rank whose variables all ranks receive.
        device: Accepted for compatibility. Variables are broadcast where they are.
        local_variables: A variable, or several, to leave unchanged.
    """

    model: Any

    def __init__(self, root_rank: int = 0, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.broadcast_done = False
        one = local_variables is not None and not isinstance(local_variables, (list, tuple, set, frozenset))
        several: Iterable[Any] = [local_variables] if one else local_variables or []
        self._local: dict[int, Any] = {}
        for variable in several:
            if not hasattr(variable, "assign"):
                raise InvalidArgument("All local variables must be of tf.Variable type.")
            self.register_local_var(variable)

    def register_local_var(self, var: Any) -> None:
        """Leave ``var`` unchanged."""
        self._local[id(var)] = var

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._announce(not self.broadcast_done)

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        if self.broadcast_done:
            return
        own = [*self.model.weights, *variables_of(self.model.optimizer)]
        rate = getattr(self.model.optimizer, "learning_rate", None)
        if hasattr(rate, "assign") and all(one is not rate for one in own):  # of tf_keras
            own.append(rate)
        broadcast_variables([one for one in own if id(one) not in self._local], self.root_rank)
        self.broadcast_done = True
        self._announce(False)

    def _announce(self, awaited: bool) -> None:
        """Postpone the optimizer's comparison of the ranks' weights while a broadcast is awaited."""
        optimizer = self.model.optimizer
        for one in (optimizer, getattr(optimizer, "inner_optimizer", None)):
            if isinstance(one, Distributed):
                one._reducer.awaits_broadcast = awaited


class MetricAverageCallback:
    """Averages the metrics of an epoch across ranks, for all callbacks after it in the list.

    Args:
        device: Accepted for compatibility. Metrics are in host memory.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if logs:
            names = sorted(logs)
            own = np.array([float(logs[name]) for name in names])
            handle = reduce_arrays([own], "MetricAverageCallback", must_match={"metrics": names})
            logs.update(zip(names, handle.wait()[0].tolist()))


class LearningRateScheduleCallback:
    """Sets the learning rate to ``initial_lr * multiplier(epoch)`` in epochs [``start_epoch``, ``end_epoch``).

    Args:
        initial_lr: Defaults to the optimizer's learning rate when training begins.
        multiplier: A function of the epoch. A number ``m`` means ``m ** (epoch - start_epoch)``.
        end_epoch: None for no end.
        staircase: Change once per epoch; else at each batch, with the epoch as ``epoch + batch / steps_per_epoch``.
        momentum_correction: Scale the optimizer's velocity with the learning rate, because it contains the learning
            rates of earlier steps (Goyal et al. 2017, https://arxiv.org/abs/1706.02677, remark 2).
        steps_per_epoch: Defaults to the value that ``fit`` is given or determines.

    Raises:
        InvalidArgument: ``initial_lr`` is None, or ``multiplier`` is missing; or, in ``fit``,
            the number of steps is needed and unknown.
    """

    model: Any
    params: dict[str, Any]

    def __init__(
        self,
        initial_lr: float = OF_THE_OPTIMIZER,
        multiplier: float | Callable[[float], float] | None = None,
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise InvalidArgument("Parameter `initial_lr` is required")
        if multiplier is None:
            raise InvalidArgument(f"{type(self).__name__}: the multiplier is missing")
        self.initial_lr = initial_lr
        self._takes_over = initial_lr is OF_THE_OPTIMIZER
        self.start_epoch, self.end_epoch = start_epoch, end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0
        self.multiplier: Callable[[float], float]
        if callable(multiplier):
            self.multiplier = multiplier
        else:
            factor = multiplier
            self.multiplier = lambda epoch: factor ** (epoch - start_epoch)

    def on_train_begin(self, logs: Logs | None = None) -> None:
        if self._takes_over:
            self.initial_lr = _learning_rate(self.model.optimizer)
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self.params.get("steps")
            if not self.steps_per_epoch:
                raise InvalidArgument(
                    f"{type(self).__name__}: the number of steps per epoch is unknown",
                    hint="Pass steps_per_epoch to the callback or to fit.",
                )

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        epoch = self.current_epoch
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        if not self.staircase:
            self._set(epoch + batch / self.steps_per_epoch)  # type: ignore[operator]
        elif batch == 0:
            self._set(epoch)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if logs is not None:
            logs["lr"] = _learning_rate(self.model.optimizer)

    def _set(self, epoch: float) -> None:
        optimizer = self.model.optimizer
        old, new = _learning_rate(optimizer), self.initial_lr * self.multiplier(epoch)
        try:
            optimizer.learning_rate = new
        except TypeError as error:
            raise InvalidArgument(
                f"{type(self).__name__}: the optimizer already has a learning rate schedule",
                hint="Pass a number as the optimizer's learning rate, or remove the callback.",
            ) from error
        if self.momentum_correction and old:
            for velocity in _velocities(optimizer, self.model):
                velocity.assign(velocity * tf.cast(new / old, velocity.dtype))


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Increases the learning rate from ``initial_lr / size`` to ``initial_lr`` in the first epochs, batch by batch.

    After ``e`` (fractional) epochs it is ``initial_lr / size * (e * (size - 1) / warmup_epochs + 1)`` (Goyal et al.
    2017, https://arxiv.org/abs/1706.02677, section 2.2). See `LearningRateScheduleCallback` for other arguments.

    Args:
        initial_lr: The final learning rate: that of one rank times the number of ranks. Defaults to the optimizer's
            learning rate when training begins.
        verbose: 1 prints a line on rank 0 at the end.
    """

    def __init__(
        self,
        initial_lr: float = OF_THE_OPTIMIZER,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            # this batch counts as done: the last batch of the last epoch uses the full learning rate
            done = min(epoch + 1.0 / (self.steps_per_epoch or 1), warmup_epochs)
            return 1.0 / hvd.size() * (done * (hvd.size() - 1) / warmup_epochs + 1)

        end = math.ceil(warmup_epochs)
        super().__init__(initial_lr, multiplier, 0, end, False, momentum_correction, steps_per_epoch)
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.end_epoch is not None and epoch == self.end_epoch - 1 and self.verbose and hvd.rank() == 0:
            rate = _learning_rate(self.model.optimizer)
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")  # noqa: T201


class BestModelCheckpoint:
    """Saves the best model so far, on rank 0. Place it after MetricAverageCallback to compare averages of all ranks.

    ``keras.callbacks.ModelCheckpoint`` documents the other arguments.

    Args:
        filepath: Ends with ``.keras``, or with ``.weights.h5`` for weights only. Default: ``best.keras`` in the job's
            model folder.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Any = "epoch",
        filepath: str | None = None,
    ) -> None:
        name = "best.weights.h5" if save_weights_only else "best.keras"
        path = filepath or str(environment.model_dir() / name)
        base: Any = super()
        base.__init__(path, monitor, verbose, True, save_weights_only, mode, save_freq)

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        if hvd.rank() == 0:
            base: Any = super()
            base.on_train_batch_end(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if hvd.rank() == 0:
            base: Any = super()
            base.on_epoch_end(epoch, logs)


class CommitStateCallback:
    """Commits ``state`` after every ``batches_per_commit`` batches, and after every epoch."""

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self._batches = 0

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._batches = 0

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._batches += 1
        if self._batches % self.batches_per_commit == 0:
            self.state.commit()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self.state.commit()


class UpdateBatchStateCallback:
    """Stores the index of the last batch in ``state.batch``; 0 after the end of an epoch."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self.state.batch = batch

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self.state.batch = 0


class UpdateEpochStateCallback:
    """Counts epochs in ``state.epoch``, across several calls of ``fit`` that begin at 0."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.initial_epoch = state.epoch

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.initial_epoch = self.state.epoch

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self.state.epoch = self.initial_epoch + epoch + 1


CALLBACKS = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]
ELASTIC_CALLBACKS = ["CommitStateCallback", "UpdateBatchStateCallback", "UpdateEpochStateCallback"]


def build_callbacks(keras: Any, module: str) -> list[Any]:
    """Derive the `CALLBACKS` from the base classes of ``keras``, in this order.

    Args:
        module: The public module of the callbacks.
    """
    return [_build(keras, name, module) for name in CALLBACKS]


def build_elastic_callbacks(keras: Any, module: str) -> list[Any]:
    """Derive the `ELASTIC_CALLBACKS`. See `build_callbacks`."""
    return [_build(keras, name, module) for name in ELASTIC_CALLBACKS]


def _build(keras: Any, name: str, module: str) -> Any:
    mixin = globals()[name]
    base = keras.callbacks.ModelCheckpoint if mixin is BestModelCheckpoint else keras.callbacks.Callback
    return type(name, (mixin, base), {"__doc__": mixin.__doc__, "__module__": module})


def _learning_rate(optimizer: Any) -> float:
    return float(tf.convert_to_tensor(optimizer.learning_rate))


def _velocities(optimizer: Any, model: Any) -> list[Any]:
    """Return the momentum variables of an optimizer."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if not hasattr(optimizer, "momentum"):
        return []
    if "momentum" in getattr(optimizer, "get_slot_names", list)():  # legacy optimizers of tf_keras
        return [optimizer.get_slot(weight, "momentum") for weight in model.trainable_weights]
    found = getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", None) or []
    return [velocity for velocity in found if velocity is not None]
