"""Sentences → vectors, for evaluation: each distinct sentence once a model state, by length, in bounded memory.

Where several processes train together, each encodes its share of the batches; the first one scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from cse_cli.core.devices import Compute
from cse_cli.core.distributed import gather_rows, shared
from cse_cli.data.batches import ViewPlan
from cse_cli.evaluation.views import encode_view
from registry.distributed import single_process
from registry.errors import CseError, suggestion
from registry.types import Encoder

KEPT = 2**30
"""Bytes of vectors kept between calls: 349,525 sentences at 768 dimensions, nine times the seven test sets'."""
VIEW_BATCH = 128
"""Sentences a batch of those that go through a view: augmenters look at whole batches."""
CHUNK = 65_536
"""Sentences tokenised and sorted at a time."""
BATCH_TOKENS = {"cpu": 2048, "cuda": 16_384}
"""Tokens a batch where nothing is asked for: what a CPU's cache holds, and what keeps a GPU busy."""
ENOUGH = 512
"""Tokens that make a batch worth its call, so that it takes no longer sentences in, which would pad the others."""


class SentenceEncoder:
    """An `Encode` that runs one state of one encoder, and keeps vectors for the evaluators that follow.

    A batch holds sentences of one length, or nearly where few have it, so that hardly anything is computed for padding,
    and as many as have `batch_tokens` tokens together, so that its memory does not depend on their length.

    Args:
        encoder: Whose `represent` makes the vectors.
        compute: Device and precision.
        batch_tokens: Most tokens a batch, padding included; None for what suits the device.
        max_length: Tokens a sentence is cut to; the encoder's own limit where that is less.
        plans: View → how it is made, for evaluators of a view's vectors.
        through: The view whose augmenters change every sentence; None where they act in training alone.
        kept: Bytes of vectors kept.
    """

    def __init__(
        self,
        encoder: Encoder,
        compute: Compute,
        batch_tokens: int | None,
        max_length: int,
        plans: Mapping[str, ViewPlan] | None = None,
        through: str | None = None,
        kept: int = KEPT,
    ) -> None:
        self.encoder = encoder
        self.compute = compute
        self.batch_tokens = batch_tokens or BATCH_TOKENS[compute.device.type]
        self.max_length = min(max_length, encoder.max_length or max_length)
        self.plans = plans or {}
        self.through = through
        self.watch: Callable[[float], None] = lambda _: None
        """Is told, after each batch, which share of the sentences asked for is encoded."""
        self._cache = VectorCache(kept)

    @torch.inference_mode()
    def __call__(self, sentences: Sequence[str]) -> Tensor:
        """Return (n, D) float32 on the CPU; equal sentences get equal vectors."""
        if not sentences:
            return torch.empty(0, self.encoder.dim)
        parts = [self._part(sentences[start : start + CHUNK]) for start in range(0, len(sentences), CHUNK)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def forget(self) -> None:
        """Encode everything anew from now on: the encoder has changed."""
        self._cache = VectorCache(self._cache.limit)

    def _part(self, sentences: Sequence[str]) -> Tensor:
        """Return the vectors of at most `CHUNK` sentences."""
        distinct = list(dict.fromkeys(sentences))
        old = [sentence for sentence in distinct if sentence in self._cache]
        parts = [self._cache.of(old)] if old else []
        if new := [sentence for sentence in distinct if sentence not in self._cache]:
            new, vectors = self._encoded(new)
            parts.append(vectors)
            self._cache.add(new, vectors)
        places = {sentence: row for row, sentence in enumerate([*old, *new])}
        return torch.cat(parts)[[places[sentence] for sentence in sentences]]

    def _encoded(self, sentences: Sequence[str]) -> tuple[list[str], Tensor]:
        """Return sentences, by length, and their vectors."""
        if self.through is not None:
            return list(sentences), self.encode_view(self.through, {self.plans[self.through].column: sentences})
        rows = self.encoder.vocabulary.ids(sentences, self.max_length)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        batches = list(self._batches([len(rows[i]) for i in order]))
        return [sentences[i] for i in order], torch.cat(self._vectors([rows[i] for i in order], batches))

    def _vectors(self, rows: Sequence[Sequence[int]], batches: Sequence[slice]) -> list[Tensor]:
        """Return the vectors of each batch of token ids."""
        return self._represented_batches(self.encoder, rows, batches)

    def _represented_batches(
        self, encoder: Encoder, rows: Sequence[Sequence[int]], batches: Sequence[slice]
    ) -> list[Tensor]:
        made = []
        for done, batch in enumerate(batches, 1):
            made.append(self._represented(encoder, rows[batch]))
            self.watch(done / len(batches))
        return made

    def _represented(self, encoder: Encoder, rows: Sequence[Sequence[int]]) -> Tensor:
        tokens = encoder.vocabulary.pad(rows)
        with self.compute.autocast():
            return encoder.represent(tokens.to(self.compute.device)).float().cpu()

    def _batches(self, lengths: Sequence[int]) -> Iterator[slice]:
        """Yield slices of ascending lengths; one row at least, and `batch_tokens` of the longest at most."""
        start = 0
        for end in range(1, len(lengths)):
            full = (end + 1 - start) * lengths[end] > self.batch_tokens
            longer = lengths[end] > lengths[end - 1] and (end - start) * lengths[end - 1] >= ENOUGH
            if full or longer:
                yield slice(start, end)
                start = end
        yield slice(start, len(lengths))

    def encode_view(self, view: str, columns: Mapping[str, Sequence[str]], training: bool = False) -> Tensor:
        """Return the same for sentences changed by a view's augmenters, in batches in the order given."""
        if view not in self.plans:
            known = f" Known: {', '.join(self.plans)}." if self.plans else " This model has none."
            raise CseError(f"unknown view '{view}'.{suggestion(view, self.plans)}{known}", "name a view of the recipe")
        with self.compute.autocast():
            named = (view, self.plans[view])
            vectors = encode_view(self.encoder, named, columns, VIEW_BATCH, self.max_length, training)
        return vectors.float().cpu()


class VectorCache:
    """Sentence → vector. Beyond the limit the oldest batch of sentences is deleted.

    Args:
        limit: Bytes of vectors kept.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self._places: dict[str, tuple[int, int]] = {}
        self._blocks: dict[int, tuple[tuple[str, ...], Tensor]] = {}
        self._next = 0

    def __contains__(self, sentence: str) -> bool:
        return sentence in self._places

    def add(self, sentences: Sequence[str], vectors: Tensor) -> None:
        """Keep (n, D) vectors of n sentences that are not here."""
        block, self._next = self._next, self._next + 1
        self._blocks[block] = tuple(sentences), vectors
        self._places |= {sentence: (block, row) for row, sentence in enumerate(sentences)}
        self.held += vectors.nbytes
        while self.held > self.limit:
            forgotten, oldest = self._blocks.pop(next(iter(self._blocks)))
            self.held -= oldest.nbytes
            for sentence in forgotten:
                del self._places[sentence]

    def of(self, sentences: Sequence[str]) -> Tensor:
        """Return (n, D): the vectors of sentences that are all here."""
        _, first = self._blocks[self._places[sentences[0]][0]]
        found = torch.empty(len(sentences), first.shape[1])
        wanted: dict[int, tuple[list[int], list[int]]] = {}
        for row, sentence in enumerate(sentences):
            block, place = self._places[sentence]
            rows, places = wanted.setdefault(block, ([], []))
            rows.append(row)
            places.append(place)
        for block, (rows, places) in wanted.items():
            found[torch.tensor(rows)] = self._blocks[block][1][torch.tensor(places)]
        return found


class ShardedEncoder(SentenceEncoder):
    """Encodes on all processes what the first one scores, in the batches of one process.

    What is fitted to vectors (whitening, a flow) exists on the first process alone: the others encode what it is
    applied to, the encoder's `foundation`.
    """

    @contextmanager
    def leading(self) -> Iterator[None]:
        """Encode from within this block, on the first process; its end ends the others' `follow`."""
        try:
            yield
        except Exception:
            shared(None)
            raise
        shared(None)

    @torch.inference_mode()
    def follow(self) -> None:
        """Encode this process's share of what the first one scores, until that is done; on the others."""
        with single_process():
            while (request := shared()) is not None:
                self._foundation_vectors(*request)

    def _vectors(self, rows: Sequence[Sequence[int]], batches: Sequence[slice]) -> list[Tensor]:
        if self.encoder.fits != "never" and self.encoder.foundation is self.encoder:
            return super()._vectors(rows, batches)  # the others have none of what was fitted
        shared((rows, batches))
        parts = self._foundation_vectors(rows, batches)
        return [self.encoder.finished(part.to(self.compute.device)).float().cpu() for part in parts]

    def _foundation_vectors(self, rows: Sequence[Sequence[int]], batches: Sequence[slice]) -> list[Tensor]:
        """Return, on the first process, the vectors of each batch before anything fitted to them."""
        world, rank = dist.get_world_size(), dist.get_rank()
        try:
            own = self._represented_batches(self.encoder.foundation, rows, batches[rank::world])
        except Exception:
            if rank == 0:
                shared(None)
            raise
        width = shared(own[0].shape[1] if own else 0)  # one with no batch of its own cannot know it
        if width is None:
            return []
        sizes = [[batch.stop - batch.start for batch in batches[one::world]] for one in range(world)]
        gathered = gather_rows(torch.cat([torch.empty(0, width), *own]), [sum(of) for of in sizes])
        parts = [list(torch.split(part, of)) for part, of in zip(gathered, sizes, strict=False)]
        return [parts[place % world][place // world] for place in range(len(batches))] if parts else []
