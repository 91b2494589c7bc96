"""Sentence embeddings for evaluation: each distinct sentence once, sorted by length, in bounded memory."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from random import Random
from typing import NoReturn

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from cse_cli.core.devices import Compute
from cse_cli.data.batches import ViewSpec
from cse_cli.data.columns import OwnColumns
from registry.accelerators import kept_randomness
from registry.dropout import dropout_rate
from registry.encoders.backbone import modes_kept
from registry.encoders.library import LibraryEncoder
from registry.errors import CseError, MissingError, suggestion
from registry.machinery import returned
from registry.prompts import Side
from registry.tokens import Embedded, Encoded
from registry.types import Encode, Encoder
from registry.vocabulary import in_evaluation

Way = tuple[str, Side | None]
"""Prompt of sentences, and their side if the encoder can have different modules for the sides."""

CACHE_BYTES = 2**30
"""Size of the cache in bytes: 349,525 sentences at 768 dimensions, nine times the seven test sets."""
VIEW_BATCH = 128
"""Number of sentences in a batch of a view. Augmenters may depend on the whole batch."""
SEED = 0
"""Seed of the augmenters at evaluation, so a score is always the same."""
CHUNK = 65_536
"""Number of sentences that are tokenized and sorted together."""
CPU_TOKENS, DEVICE_TOKENS = 2048, 16_384
"""Default numbers of tokens per batch: the content of a CPU cache, and enough work for a GPU."""
ENOUGH = 512
"""Minimum size of a batch in tokens before a longer sentence, which pads the others, starts a new batch."""


class SentenceEncoder:
    """An `Encode` for one state of one encoder. It caches embeddings for the next evaluators.

    A batch contains sentences of the same or nearly the same length, so there is little padding. It has at most
    `batch_tokens` tokens, so its memory does not depend on the length of the sentences.

    The augmenters of the view `through` change every sentence. `specs` are for evaluators of views, `columns` make what
    a view reads and an evaluator does not have.
    """

    def __init__(
        self,
        encoder: Encoder,
        compute: Compute,
        batch_tokens: int | None,
        max_length: int,
        specs: Mapping[str, ViewSpec] | None = None,
        through: str | None = None,
        columns: OwnColumns | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self.encoder = encoder
        self.compute = compute
        self.batch_tokens = batch_tokens or (CPU_TOKENS if compute.device.type == "cpu" else DEVICE_TOKENS)
        self.max_length = min(max_length, encoder.max_length or max_length)
        self.specs = specs or {}
        self.through = through
        self.columns = columns or OwnColumns()
        self.watch: Callable[[float], None] = lambda _: None
        """Callback after each batch with the share of encoded sentences."""
        self.cache_bytes = cache_bytes
        self.prompts: dict[str, str] = {}
        """Name of each prompt that was used → its text."""
        self._cache: dict[tuple[Way, str], np.ndarray] = {}

    @torch.inference_mode()
    def __call__(self, sentences: Sequence[str], side: Side | None = None, prompts: Sequence[str] = ()) -> Tensor:
        """Return embeddings (n, D), float32 on the CPU. Equal sentences with equal prompts have equal embeddings."""
        if not sentences:
            return torch.empty(0, self.encoder.dim)
        name, prompt = self.encoder.prompts.choose(side, prompts)
        if prompt:
            self.prompts[name] = prompt
        way = prompt, side if isinstance(self.encoder, LibraryEncoder) else None
        parts = [self._part(sentences[start : start + CHUNK], way) for start in range(0, len(sentences), CHUNK)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def forget(self) -> None:
        """Clear the cache after a change of the encoder."""
        self._cache.clear()

    def _part(self, sentences: Sequence[str], way: Way) -> Tensor:
        if new := [sentence for sentence in dict.fromkeys(sentences) if (way, sentence) not in self._cache]:
            ordered, vectors = self._encoded(new, way)
            self._cache.update(zip(((way, sentence) for sentence in ordered), vectors, strict=True))
        found = np.stack([self._cache[way, sentence] for sentence in sentences])
        while len(self._cache) * found[0].nbytes > self.cache_bytes:
            del self._cache[next(iter(self._cache))]  # the oldest
        return torch.from_numpy(found)

    def _encoded(self, sentences: Sequence[str], way: Way) -> tuple[list[str], np.ndarray]:
        """Return the sentences sorted by length, and their embeddings."""
        if self.through is not None:
            views = self.encode_view(self.through, {self.specs[self.through].column: sentences})
            return list(sentences), views.numpy()
        if isinstance(self.encoder, LibraryEncoder):
            with self.compute.autocast():
                vectors = self.encoder.encode_texts(sentences, self.max_length, *way)
            return list(sentences), vectors.float().cpu().numpy()
        vocabulary = self.encoder.vocabulary
        texts = [way[0] + sentence for sentence in in_evaluation(vocabulary, sentences)]
        rows = vocabulary.ids(texts, self.max_length)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        batches = list(self._batches([len(rows[i]) for i in order]))
        vectors = torch.cat(self._vectors([rows[i] for i in order], batches))
        return [sentences[i] for i in order], (F.normalize(vectors) if self.encoder.normalizes else vectors).numpy()

    def _vectors(self, rows: Sequence[Sequence[int]], batches: Sequence[slice]) -> list[Tensor]:
        embeddings = []
        for done, batch in enumerate(batches, 1):
            tokens = self.encoder.vocabulary.pad(rows[batch])
            with self.compute.autocast():
                vectors = self.encoder.encode_for_eval(tokens.to(self.compute.device))
            returned.shape(self.encoder, "encode_for_eval", vectors, tokens.rows, None)
            embeddings.append(vectors.float().cpu())
            self.watch(done / len(batches))
        return embeddings

    def _batches(self, lengths: Sequence[int]) -> Iterator[slice]:
        """Yield slices with at least one row and, if padded to the longest row, at most `batch_tokens` tokens."""
        start = 0
        for end in range(1, len(lengths)):
            full = (end + 1 - start) * lengths[end] > self.batch_tokens
            longer = lengths[end] > lengths[end - 1] and (end - start) * lengths[end - 1] >= ENOUGH
            if full or longer:
                yield slice(start, end)
                start = end
        yield slice(start, len(lengths))

    def encode_view(self, view: str, columns: Mapping[str, Sequence[str]], training: bool = False) -> Tensor:
        """Return embeddings (n, D) of sentences that a view's augmenters changed. Row i belongs to cell i.

        With `training` these are the embeddings that losses compare, with dropout, training's pooling and heads. Each
        view then has its own random numbers, because two views may differ only by their dropout masks. Modes, buffers
        and random states are restored afterwards.
        """
        if view not in self.specs:
            known = f"use {', '.join(self.specs)}" if self.specs else "evaluate in a recipe that has views"
            raise CseError(f"unknown view '{view}'.{suggestion(view, self.specs)}", known, code="evaluate.unknown_view")
        spec, encoder = self.specs[view], self.encoder
        columns = self.columns.added(columns, {spec.column, *spec.side})
        if missing := sorted({spec.column, *spec.side} - set(columns)):
            raise MissingError(
                f"view '{view}' needs the missing column '{', '.join(missing)}'",
                "add the column to the data",
                code="evaluate.missing_column",
            )
        place = next((p.device for p in encoder.parameters()), torch.device("cpu"))
        seed = zlib.crc32(view.encode()) if training else SEED
        own, shared, step = Random(seed), Random(SEED), EvaluationStep(torch.Generator().manual_seed(seed))
        vectors = []
        mode = _in_training(encoder) if training else nullcontext()
        with (
            self.compute.autocast(), kept_randomness(place), torch.no_grad(), mode, dropout_rate(encoder, spec.dropout)
        ):  # fmt: skip
            torch.manual_seed(seed)
            for start in range(0, len(columns[spec.column]), VIEW_BATCH):
                batch = {column: cells[start : start + VIEW_BATCH] for column, cells in columns.items()}
                pieces = spec.pieces(batch[spec.column], own, shared, self.max_length)
                side = {name: known.pad(known.ids(batch[name], self.max_length)) for name, known in spec.side.items()}
                tokens = replace(spec.vocabulary.assemble(pieces), side=side).to(place)
                for augmenter in spec.augmenters:
                    tokens = augmenter.on_tokens(tokens, step)
                embedded = Embedded(tokens, encoder.embed(tokens))
                for augmenter in spec.augmenters:
                    embedded = augmenter.on_embeddings(embedded, view, step)
                if training:
                    vectors.append(encoder.encode(embedded.tokens, embedded.vectors).at_least_single().sentence)
                else:
                    vectors.append(encoder.encode_for_eval(embedded.tokens, embedded.vectors))
        return torch.cat(vectors).float().cpu()


@dataclass
class EvaluationStep:
    """A step outside training, without a loss or other views."""

    generator: torch.Generator
    index: int = 0
    total: int = 1
    embedded: Mapping[str, Embedded] = field(default_factory=dict)
    views: Mapping[str, Encoded] = field(default_factory=dict)

    def gradient(self, view: str) -> NoReturn:
        """Raise an error because evaluation has no gradient."""
        raise CseError(
            f"view '{view}' needs a gradient or embeddings of other views, which exist only in training",
            "evaluate a view whose augmenters need neither",
            code="evaluate.view_needs_training",
        )

    sentences = gradient


@contextmanager
def _in_training(encoder: Encoder) -> Iterator[None]:
    """Switch to training mode, and restore modes and buffers, such as running statistics, afterwards."""
    kept = [
        (module, name, buffer, buffer.clone())
        for module in encoder.modules()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    with modes_kept(encoder):
        encoder.train()
        try:
            yield
        finally:
            for module, name, buffer, value in kept:
                setattr(module, name, buffer.copy_(value))


@dataclass(frozen=True)
class FirstDimensions:
    """An `Encode` that returns only the first dimensions of another one's embeddings."""

    encode: Encode
    width: int

    def __call__(self, sentences: Sequence[str], side: Side | None = None, prompts: Sequence[str] = ()) -> Tensor:
        """Return embeddings (n, width)."""
        return self._cut(self.encode(sentences, side, prompts))

    def encode_view(self, view: str, columns: Mapping[str, Sequence[str]], training: bool = False) -> Tensor:
        """Return embeddings of a view. Those that losses compare keep their width."""
        vectors = self.encode.encode_view(view, columns, training)
        return vectors if training else self._cut(vectors)

    def _cut(self, vectors: Tensor) -> Tensor:
        if self.width > vectors.shape[1]:
            raise CseError(
                f"width {self.width} is larger than the embeddings, which have {vectors.shape[1]} dimensions",
                f"use a width up to {vectors.shape[1]}",
                code="evaluate.too_wide",
            )
        return vectors[:, : self.width]
