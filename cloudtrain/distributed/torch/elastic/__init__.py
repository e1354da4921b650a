"""Training that survives lost ranks: the API of Elastic Horovod on torchrun's elastic agent.

    import cloudtrain.distributed.torch as hvd

    @hvd.elastic.run
    def train(state):
        for state.batch in range(state.batch, batches):
            ...
            state.commit()

    train(hvd.elastic.TorchState(model, optimizer, batch=0))

With ``torchrun --max-restarts``, all ranks are restarted when one dies, and `run` restores the last commit.
"""

from cloudtrain.distributed.errors import HostsUpdatedInterrupt
from cloudtrain.distributed.torch.elastic._state import ElasticSampler, ObjectState, State, TorchState, run

__all__ = ["ElasticSampler", "HostsUpdatedInterrupt", "ObjectState", "State", "TorchState", "run"]
