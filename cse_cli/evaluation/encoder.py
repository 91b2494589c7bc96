"""Sentence embeddings for evaluation: each distinct sentence once, sorted by length, in bounded memory.

If several processes train together, each encodes its share of the batches and the first one computes the scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from cse_cli.core.devices import Compute
from cse_cli.core.distributed import gather_rows, shared
from cse_cli.data.batches import ViewSpec
from cse_cli.data.columns import OwnColumns
from cse_cli.evaluation.views import encode_view
from registry.distributed import single_process
from registry.encoders.library import LibraryEncoder
from registry.errors import CseError, suggestion
from registry.machinery import returned
from registry.prompts import Side
from registry.types import Encode, Encoder
from registry.vocabulary import in_evaluation

Way = tuple[str, Side | None]
"""Prompt of sentences, and their side if the encoder can have different modules for the sides."""

CACHE_BYTES = 2**30
"""Size of the cache in bytes: 349,525 sentences at 768 dimensions, nine times the seven test sets."""
VIEW_BATCH = 128
"""Number of sentences in a batch of a view. Augmenters may depend on the whole batch."""
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
        return self._encode_batches(self.encoder, rows, batches)

    def _encode_batches(
        self, encoder: Encoder, rows: Sequence[Sequence[int]], batches: Sequence[slice]
    ) -> list[Tensor]:
        embeddings = []
        for done, batch in enumerate(batches, 1):
            tokens = encoder.vocabulary.pad(rows[batch])
            with self.compute.autocast():
                vectors = encoder.encode_for_eval(tokens.to(self.compute.device))
            returned.shape(encoder, "encode_for_eval", vectors, tokens.rows, None)
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
        """Return embeddings of sentences changed by a view's augmenters, in batches in the given order."""
        if view not in self.specs:
            known = f"use {', '.join(self.specs)}" if self.specs else "evaluate in a recipe that has views"
            raise CseError(f"unknown view '{view}'.{suggestion(view, self.specs)}", known, code="evaluate.unknown_view")
        spec = self.specs[view]
        columns = self.columns.added(columns, {spec.column, *spec.side})
        with self.compute.autocast():
            vectors = encode_view(self.encoder, (view, spec), columns, VIEW_BATCH, self.max_length, training)
        return vectors.float().cpu()


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


class ShardedEncoder(SentenceEncoder):
    """A `SentenceEncoder` that uses all processes. Its batches are those of one process.

    Fitted parts of an encoder (whitening, a flow) exist only on the first process. The other processes run the
    encoder's `foundation`, to which these parts are applied.
    """

    @contextmanager
    def leading(self) -> Iterator[None]:
        """Encode inside this block on the first process. The end of the block also ends `follow` on the others."""
        try:
            yield
        except Exception:
            shared(None)
            raise
        shared(None)

    @torch.inference_mode()
    def follow(self) -> None:
        """Encode this process's share until the first process leaves `leading`."""
        with single_process():
            while (request := shared()) is not None:
                self._foundation_vectors(*request)

    def _vectors(self, rows: Sequence[Sequence[int]], batches: Sequence[slice]) -> list[Tensor]:
        if self.encoder.fits != "never" and self.encoder.foundation is self.encoder:
            return super()._vectors(rows, batches)  # only the first process has the fitted parts
        shared((rows, batches))
        parts = self._foundation_vectors(rows, batches)
        return [self.encoder.finished(part.to(self.compute.device)).float().cpu() for part in parts]

    def _foundation_vectors(self, rows: Sequence[Sequence[int]], batches: Sequence[slice]) -> list[Tensor]:
        """Return the foundation's embeddings of each batch on the first process, and an empty list on the others."""
        world, rank = dist.get_world_size(), dist.get_rank()
        try:
            own = self._encode_batches(self.encoder.foundation, rows, batches[rank::world])
        except Exception:
            if rank == 0:
                shared(None)
            raise
        width = shared(own[0].shape[1] if own else 0)  # a process without a batch does not know it
        if width is None:
            return []
        sizes = [[batch.stop - batch.start for batch in batches[one::world]] for one in range(world)]
        gathered = gather_rows(torch.cat([torch.empty(0, width), *own]), [sum(of) for of in sizes])
        parts = [list(torch.split(part, of)) for part, of in zip(gathered, sizes, strict=False)]
        return [parts[place % world][place // world] for place in range(len(batches))] if parts else []
