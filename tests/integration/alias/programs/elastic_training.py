"""A script for Elastic Horovod, in the style of its examples."""

import horovod.torch as hvd
import torch
from horovod.common.exceptions import HorovodInternalError
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState

hvd.init()
torch.manual_seed(hvd.rank())
dataset = torch.utils.data.TensorDataset(torch.arange(32.0)[:, None] / 32)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
sampler = ElasticSampler(dataset, shuffle=False)
failed = []


@hvd.elastic.run
def train(state):
    loader = torch.utils.data.DataLoader(dataset, batch_size=4, sampler=sampler)
    for state.epoch in range(state.epoch, 3):  # noqa: B020
        for batch, (inputs,) in enumerate(loader):
            optimizer.zero_grad()
            (model(inputs) - 3 * inputs).square().mean().backward()
            optimizer.step()
            sampler.record_batch(batch, 4)
            state.processed += len(inputs)
            if batch % 2 == 1:
                state.commit()
            if state.epoch == 1 and batch == 0 and not failed:
                failed.append(True)
                raise HorovodInternalError("all ranks lose a batch")
        sampler.set_epoch(state.epoch + 1)


def on_state_reset():
    for group in optimizer.param_groups:
        group["lr"] = 0.05 * hvd.size()


state = TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, processed=0)
state.register_reset_callbacks([on_state_reset])
train(state)
weights = hvd.allgather(model.weight.detach())
assert bool((weights == weights[0]).all())
if hvd.rank() == 0:
    print(f"epochs {state.epoch + 1}, samples of each rank {state.processed}", flush=True)
