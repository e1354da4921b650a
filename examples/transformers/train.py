"""Train a tiny BERT with Hugging Face's Trainer: does a sentence begin with an even token?

cloudtrain submit train.yaml
"""

from __future__ import annotations

import hashlib
import os

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint

WORDS, LENGTH = 32, 8


def make_sentences(count: int, seed: int) -> list[dict[str, torch.Tensor]]:
    tokens = torch.randint(WORDS, (count, LENGTH), generator=torch.Generator().manual_seed(seed))
    return [{"input_ids": row, "labels": row[0] % 2} for row in tokens]


def accuracy(prediction) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


[arguments] = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
torch.manual_seed(0)
config = BertConfig(
    vocab_size=WORDS, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
    max_position_embeddings=LENGTH, num_labels=2,
)  # fmt: skip
trainer = Trainer(
    BertForSequenceClassification(config),
    arguments,
    train_dataset=make_sentences(512, seed=1),
    eval_dataset=make_sentences(128, seed=2),
    compute_metrics=accuracy,
)
trainer.train(resume_from_checkpoint=get_last_checkpoint(arguments.output_dir))
measured = trainer.evaluate()["eval_accuracy"]
weights = torch.cat([value.flatten() for value in trainer.model.state_dict().values()]).cpu()
digest = hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:8]
print(
    f"rank {arguments.process_index} of {arguments.world_size}: {trainer.state.global_step} steps on "
    f"{arguments.device}, weights {digest}, accuracy={measured:.3f}",
    flush=True,
)
trainer.save_model(os.environ["SM_MODEL_DIR"])
