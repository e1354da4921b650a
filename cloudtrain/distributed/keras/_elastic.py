"""What Horovod's elastic callbacks do, for every Keras (see `cloudtrain.distributed.keras._callbacks`)."""

from __future__ import annotations

from typing import Any

Logs = dict[str, Any]


class CommitStateCallback:
    """Commits ``state`` after every ``batches_per_commit`` batches, and at the end of an epoch."""

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
    """Keeps the number of the epoch's last batch in ``state.batch``; 0 once the epoch has ended."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self.state.batch = batch

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self.state.batch = 0


class UpdateEpochStateCallback:
    """Counts epochs in ``state.epoch``, also over several calls of ``fit`` that begin at 0."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.initial_epoch = state.epoch

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.initial_epoch = self.state.epoch

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self.state.epoch = self.initial_epoch + epoch + 1
