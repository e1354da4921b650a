"""Sparse gradients of embeddings, reduced as sparse or dense tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from _cases import raises, run, seeded
from _training import check, weights
from torch import Tensor, nn

import cloudtrain.distributed.torch as hvd

ROWS, WORDS = 12, 5
"""Rows of the embedding, and indices in one rank's batch."""


class Tagger(nn.Module):
    def __init__(self, sparse: bool) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.words = nn.Embedding(ROWS, 3, sparse=sparse)
        self.tags = nn.Linear(3, 2)
        self.double()

    def forward(self, words: Tensor) -> Tensor:
        return self.tags(self.words(words)).square().mean()


def batches(steps: int) -> Iterator[Tensor]:
    generator = seeded(3)
    for _ in range(steps):
        yield torch.randint(0, ROWS, (WORDS * hvd.size(),), generator=generator)


def mine(joined: Tensor) -> Tensor:
    return joined[WORDS * hvd.rank() :][:WORDS]


def distributed(model: nn.Module, **arguments: Any) -> Any:
    sgd = torch.optim.SGD(model.parameters(), lr=0.5)
    return hvd.DistributedOptimizer(sgd, model.named_parameters(), **arguments)


def train_alone(steps: int = 4) -> Tensor:
    model = Tagger(sparse=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for words in batches(steps):
        optimizer.zero_grad()
        model(words).backward()
        optimizer.step()
    return weights(model)


def case_equals_one_process_with_all_batches() -> None:
    for arguments in (
        {},
        {"sparse_as_dense": True},
        {"gradient_predivide_factor": 2.0},
        {"op": hvd.Sum},
        {"groups": 1},
        {"sparse_as_dense": True, "groups": 1},
    ):
        for set_to_none in (True, False):
            model = Tagger(sparse=True)
            optimizer = distributed(model, **arguments)
            share = hvd.size() if arguments.get("op") == hvd.Sum else 1
            for words in batches(4):
                optimizer.zero_grad(set_to_none)
                (model(mine(words)) / share).backward()
                optimizer.step()
                assert model.words.weight.grad.is_sparse
            check(model, train_alone())


def case_passes() -> None:
    for sparse_as_dense in (False, True):
        model = Tagger(sparse=True)
        optimizer = distributed(model, backward_passes_per_step=WORDS, sparse_as_dense=sparse_as_dense)
        for words in batches(4):
            optimizer.zero_grad()
            for word in mine(words):
                (model(word[None]) / WORDS).backward()
            optimizer.step()
        check(model, train_alone())


def case_an_optimizer_for_sparse_gradients_only() -> None:
    for sparse_as_dense in (False, True):
        models = []
        for words in (mine, lambda joined: joined):
            embedding = nn.Embedding(ROWS, 3, sparse=True).double()
            with torch.no_grad():
                embedding.weight.copy_(torch.arange(ROWS * 3).reshape(ROWS, 3) / 10)
            adam = torch.optim.SparseAdam(embedding.parameters(), lr=0.1)
            if words is mine:
                adam = hvd.DistributedOptimizer(adam, sparse_as_dense=sparse_as_dense)
            for joined in batches(1):
                embedding(words(joined)).square().mean().backward()
                adam.step()
            models.append(embedding)
        check(models[0], weights(models[1]))


def case_ranks_that_do_not_use_the_embedding() -> None:
    for used in ([0], [hvd.size() - 1], []):
        model = Tagger(sparse=True)
        optimizer = distributed(model)
        for words in batches(3):
            optimizer.zero_grad()
            if hvd.rank() in used:
                model(mine(words)).backward()
            optimizer.step()
        check(model)


def case_sparse_after_a_step_without_gradient() -> None:
    model = Tagger(sparse=True)
    optimizer = distributed(model)
    optimizer.step()
    for words in batches(4):
        optimizer.zero_grad()
        model(mine(words)).backward()
        optimizer.step()
        assert model.words.weight.grad.is_sparse
    check(model, train_alone())


def case_dense_after_sparse() -> None:
    model = Tagger(sparse=True)
    optimizer = distributed(model)
    for step, words in enumerate(batches(4)):
        model.words.sparse = step == 0
        optimizer.zero_grad()
        model(mine(words)).backward()
        optimizer.step()
    check(model, train_alone())


def case_adasum() -> None:
    model = Tagger(sparse=True)
    other = Tagger(sparse=False)
    for each in (model, other):
        optimizer = distributed(each, op=hvd.Adasum)
        for words in batches(3):
            optimizer.zero_grad()
            each(mine(words)).backward()
            optimizer.step()
    check(model, weights(other))


def case_the_comparison_can_fail() -> None:
    if hvd.size() == 1:
        return
    model = Tagger(sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for words in batches(4):
        optimizer.zero_grad()
        model(mine(words)).backward()
        optimizer.step()
    with raises(AssertionError):
        check(model, train_alone())


if __name__ == "__main__":
    run(globals())
