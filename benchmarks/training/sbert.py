"""sentence-transformers' trainer with MultipleNegativesRankingLoss and each sentence as its own positive."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.training.clock import Clock
from benchmarks.training.cse_steps import MANY, sentences
from benchmarks.training.material import Setting
from benchmarks.training.plain import RATE, TEMPERATURE
from cse_cli.data.batches import Batches


class Sbert:
    """sentence-transformers' trainer without logging, saving and progress bar.

    Its collator tokenizes inside the step. To make the steps of all implementations the same, sentences are tokenized
    before the first step, and the collator looks up their tokens and pads them. `own_tokens` keeps its collator.

    Args:
        setting: Model, batch.
        batches: Sentences of each step.
        total: Steps of the whole training. None: only those of a call, with a new optimizer for each call.
        own_tokens: Whether the collator tokenizes inside the step, as shipped.
    """

    def __init__(self, setting: Setting, batches: Batches, total: int | None = None, own_tokens: bool = False) -> None:
        from sentence_transformers import SentenceTransformer

        self.name = "sentence-transformers, as shipped" if own_tokens else "sentence-transformers"
        self.setting = setting
        self.batches = batches
        self.total = total or MANY
        self.own_tokens = own_tokens
        self.texts = sentences(batches)
        self.device = torch.device(setting.device)
        self.model = SentenceTransformer(modules=_modules(setting), device=str(self.device))
        self.model.model_card_data.generate_widget_examples = False
        self.done = 0

    def steps(self, count: int, clock: Clock | None = None) -> list[float]:
        """Run `count` steps and return their losses."""
        chosen = [self.batches.indices(step) for step in range(self.done, self.done + count)]
        rows = [self.texts[row] for batch in chosen for row in batch]
        self.done += count
        with tempfile.TemporaryDirectory() as folder:
            trainer, losses = self._trainer(rows, count, folder, clock or Clock(self.device))
            trainer.train()
        return [float(loss) for loss in losses]

    def _trainer(self, rows: list[str], count: int, folder: str, clock: Clock) -> tuple[Any, list[torch.Tensor]]:
        from datasets import Dataset
        from sentence_transformers import SentenceTransformerTrainer
        from transformers import PrinterCallback, get_linear_schedule_with_warmup

        loss, losses = _watched(self.model)
        trainer = SentenceTransformerTrainer(
            model=self.model,
            args=_arguments(self.setting, count, folder),
            train_dataset=Dataset.from_dict({"anchor": rows, "positive": rows}),
            loss=loss,
            callbacks=[_marks(clock)],
        )
        trainer.remove_callback(PrinterCallback)
        optimizer = trainer.create_optimizer()
        trainer.lr_scheduler = get_linear_schedule_with_warmup(optimizer, 0, self.total)
        if not self.own_tokens:
            name = "preprocess_fn" if hasattr(trainer.data_collator, "preprocess_fn") else "tokenize_fn"
            like = dict(getattr(trainer.data_collator, name)(rows[:1]))
            setattr(trainer.data_collator, name, self._looked_up(rows, like))
        return trainer, losses

    def _looked_up(self, rows: list[str], like: dict[str, Any]) -> Callable[..., dict[str, Any]]:
        """Return a replacement for tokenizing, with the same fields as `like`, from tokens computed in advance."""
        tokenizer = self.model.tokenizer
        made = tokenizer(rows, truncation=True, max_length=self.setting.length)
        fields = [field for field in tokenizer.model_input_names if field in like]
        known = {row: {field: made[field][place] for field in fields} for place, row in enumerate(rows)}
        rest = {key: value for key, value in like.items() if key not in fields}

        def look_up(inputs: Sequence[str], **_: Any) -> dict[str, Any]:
            padded = tokenizer.pad([known[text] for text in inputs], padding=True, return_tensors="pt")
            return {**padded, **rest}

        return look_up


def _modules(setting: Setting) -> list[torch.nn.Module]:
    try:
        from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    except ImportError:  # before release 6
        from sentence_transformers.models import Pooling, Transformer
    transformer = Transformer(str(setting.model), max_seq_length=setting.length)
    width = getattr(transformer, "get_embedding_dimension", None) or transformer.get_word_embedding_dimension
    return [transformer, Pooling(width(), pooling_mode="cls")]


def _arguments(setting: Setting, count: int, folder: str) -> Any:
    from sentence_transformers import SentenceTransformerTrainingArguments

    return SentenceTransformerTrainingArguments(
        output_dir=folder,
        max_steps=count,
        per_device_train_batch_size=setting.batch,
        learning_rate=RATE,
        weight_decay=0.0,
        max_grad_norm=1.0,
        bf16=setting.precision == "bf16",
        use_cpu=setting.device == "cpu",
        seed=setting.seed,
        batch_sampler=_in_order,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def _in_order(dataset: Any, batch_size: int, drop_last: bool, **more: Any) -> Any:
    """Return the batches in the order of the data set, as for `cse`."""
    from sentence_transformers import DefaultBatchSampler
    from torch.utils.data import SequentialSampler

    return DefaultBatchSampler(SequentialSampler(dataset), batch_size=batch_size, drop_last=drop_last, **more)


def _watched(model: Any) -> tuple[Any, list[torch.Tensor]]:
    """Return the loss, and the list to which it appends its values."""
    try:
        from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    except ImportError:  # before release 6
        from sentence_transformers.losses import MultipleNegativesRankingLoss

    loss, losses = MultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE), []
    loss.register_forward_hook(lambda _, __, value: losses.append(value.detach()))
    return loss, losses


def _marks(clock: Clock) -> Any:
    from transformers import TrainerCallback

    class Marks(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            clock.mark()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.mark()

    return Marks()
