"""Plain loop over batches, as in the papers' forks of SimCSE."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from benchmarks.training.clock import Clock
from benchmarks.training.cse_steps import MANY, sentences
from benchmarks.training.material import Setting
from cse_cli.data.batches import Batches

TEMPERATURE = 0.05
RATE = 3e-5


class Plain:
    """Loop with two forward passes over a padded batch, cosines, cross-entropy, clipping and AdamW.

    Sentences are tokenized before the first step, as in SimCSE's `train.py`. Inside the step, the tokenizer's `pad`
    pads each batch to its longest sentence, as in SimCSE's collator.

    Args:
        setting: Model, batch.
        batches: Sentences of each step.
        total: Steps of the whole training.
    """

    name = "plain loop"

    def __init__(self, setting: Setting, batches: Batches, total: int = MANY) -> None:
        from transformers import AutoConfig, AutoModel, AutoTokenizer, get_linear_schedule_with_warmup

        from registry.resources.models import loading_options

        self.batches = batches
        self.device = torch.device(setting.device)
        self.half = setting.precision == "bf16"
        self.tokenizer = AutoTokenizer.from_pretrained(setting.model)
        self.texts = sentences(batches)
        self.length = setting.length
        options = loading_options(AutoConfig.from_pretrained(setting.model))
        self.model = AutoModel.from_pretrained(setting.model, dtype="float32", **options)
        self.model.to(self.device).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE, weight_decay=0.0)
        self.schedule = get_linear_schedule_with_warmup(self.optimizer, 0, total)
        self.done = 0

    def steps(self, count: int, clock: Clock | None = None) -> list[float]:
        """Run `count` steps and return their losses."""
        losses: list[Tensor] = []
        loader = self._loader(count)
        clock = clock or Clock(self.device)
        clock.mark()
        for batch in loader:
            losses.append(self._step({key: value.to(self.device) for key, value in batch.items()}))
            clock.mark()
        self.done += count
        return [float(loss) for loss in losses]

    def _loader(self, count: int) -> DataLoader[Any]:
        chosen = [self.batches.indices(step) for step in range(self.done, self.done + count)]
        rows = [row for batch in chosen for row in batch]
        ids = self.tokenizer([self.texts[row] for row in rows], truncation=True, max_length=self.length)["input_ids"]
        size = len(chosen[0])
        return DataLoader([{"input_ids": row} for row in ids], size, collate_fn=self._collate)  # type: ignore[arg-type]

    def _collate(self, features: list[dict[str, Any]]) -> dict[str, Tensor]:
        padded: dict[str, Tensor] = dict(self.tokenizer.pad(features, padding=True, return_tensors="pt"))
        return padded

    def _step(self, batch: dict[str, Tensor]) -> Tensor:
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.half):
            first, second = (self.model(**batch).last_hidden_state[:, 0] for _ in range(2))
            similarity = F.cosine_similarity(first.unsqueeze(1), second.unsqueeze(0), dim=-1) / TEMPERATURE
            loss = F.cross_entropy(similarity, torch.arange(len(first), device=self.device))
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.model.zero_grad()
        return loss.detach()
