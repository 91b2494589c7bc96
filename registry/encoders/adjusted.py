"""Base class of encoders that post-process the embeddings of another encoder: whitening, flow, rank mixture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from registry.encoders.export import drafted, write_own, write_weights
from registry.errors import CseError
from registry.resources import catalog
from registry.tokens import Encoded, Tokens
from registry.types import Encode, Encoder, FileName, Resource

TARGET = "target"
"""Value of `fit_on` for the sentences of the evaluator."""

CHUNK = 8192
"""Number of sentences in memory at a time. A corpus can have any size."""

ADJUSTMENT = "adjustment.safetensors"
BASE = "base"


class Adjusted(Encoder):
    """Encoder that post-processes the embeddings of another encoder and never changes that encoder.

    Checkpoints contain the weights of the other encoder. They do not contain the adjustment, which is fitted again
    before each evaluation.

    Args:
        of: Encoder whose embeddings are adjusted. The recipe declares it before this one.
        fit_on: Data set of the catalog, or "target": all sentences of each evaluator's own data set, test split
            included, without labels. Alternative to `file`.
        split: Split of the data set.
        file: Your own table of sentences: a .tsv, .csv, .jsonl or .parquet file with named columns.
        columns: Columns that contain sentences.
        limit: Maximum number of sentences. Default: all.

    Raises:
        UnknownNameError: If the data set, split or column does not exist.
        MissingError: If the data set is not on this machine and cannot be downloaded, or the file does not exist.
        CseError: Unless exactly one of `fit_on` and `file` is given.
    """

    stateful: ClassVar[bool] = False  # a checkpoint contains the other encoder under its own name

    method: ClassVar[str]
    """Registered name, also the `format` of an export."""

    def __init__(
        self,
        *,
        of: Encoder,
        fit_on: Annotated[str, Resource("dataset", evaluated=TARGET)] | None = None,
        split: str = "train",
        file: FileName | None = None,
        columns: list[str] = ["text"],  # noqa: B006 - a declaration, never changed
        limit: Annotated[int, Field(ge=2)] | None = None,
    ) -> None:
        super().__init__()
        if (fit_on is None) == (file is None):
            found = "neither `fit_on` nor `file`" if file is None else f"both fit_on '{fit_on}' and file '{file}'"
            action = f'set either `fit_on`, a data set or "{TARGET}", or `file`'
            raise CseError(f"{self.method}: {found}", action, code="encoders.fit_on_or_file")
        self.of, self.fit_on, self.split, self.file, self.columns, self.limit = of, fit_on, split, file, columns, limit
        if fit_on is not None and fit_on != TARGET:
            catalog.locate(fit_on, split).require(columns)
        elif file is not None:
            next(catalog.own_source(file, columns).read(columns), None)  # a missing column is an error now
        self.fits = "each" if fit_on == TARGET else "once"
        self.dim, self.width, self.max_length, self.vocabulary = of.dim, of.width, of.max_length, of.vocabulary
        self.augment_at, self.memory = of.augment_at, of.memory
        self._fitting = False

    @property
    def eval_pooling(self) -> str:
        """Pooling of the other encoder."""
        return str(getattr(self.of, "eval_pooling", ""))

    def fingerprints(self) -> dict[str, str]:
        """Return "dataset/split" → content digest of the corpus, or nothing for an evaluator's own sentences."""
        if self.file is not None:
            return {self.file: f"{catalog.ROWS}{catalog.own_source(self.file, self.columns).digest}"}
        if self.fit_on is None or self.fit_on == TARGET:
            return {}
        return {f"{self.fit_on}/{self.split}": catalog.fingerprint(self.fit_on, self.split)}

    def embed(self, tokens: Tokens) -> Tensor:
        """Return the (B, L, W) token vectors before any dropout."""
        return self.of.embed(tokens)

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:  # noqa: ARG002 - the hook's form
        """Raise an error, because an adjustment applies to finished embeddings only."""
        raise CseError(
            f"views cannot use the encoder '{self.method}': it only post-processes embeddings",
            "use the encoder of its `of` in the views, and this encoder in [evaluate] encoder",
            code="encoders.no_views",
        )

    def encode_for_eval(self, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Return the (B, D') adjusted embeddings of the other encoder, in single precision under autocast too."""
        vectors = self.of.encode_for_eval(tokens, embeddings)
        if self._fitting:
            return vectors
        if not self.fitted:
            raise CseError(
                f"encoder '{self.method}' is not fitted to any sentences",
                "run an evaluator with this encoder first",
                code="encoders.not_fitted",
            )
        with torch.no_grad(), torch.autocast(vectors.device.type, enabled=False):
            return self.adjust(vectors.float())

    @property
    def foundation(self) -> Encoder:
        """Innermost encoder below all adjustments."""
        return self.of.foundation

    def fit(self, encode: Encode, target: Sequence[str]) -> None:
        """Fit the adjustment to the data set, or to `target` if `fit_on` is "target"."""
        self._fitting = True
        try:
            self.fit_vectors(lambda: self._vectors(encode, target))
        finally:
            self._fitting = False
        if not self.fitted:
            raise CseError(
                f"encoder '{self.method}' needs at least two sentences, and '{self.fit_on or self.file}' has fewer",
                "use a larger data set or file, or a higher limit",
                code="encoders.too_few_sentences",
            )

    def _vectors(self, encode: Encode, target: Sequence[str]) -> Iterator[Tensor]:
        """Yield the (n, D) embeddings of the first `limit` sentences in order, n ≤ `CHUNK`."""
        every: Iterable[str] = target
        if self.file is not None:
            every = chain.from_iterable(catalog.own_source(self.file, self.columns).read(self.columns))
        elif self.fit_on is not None and self.fit_on != TARGET:
            rows = catalog.open_text(self.fit_on, self.split)
            every = (row[column] for row in rows for column in self.columns)
        sentences = islice(every, self.limit)
        while chunk := list(islice(sentences, CHUNK)):
            with torch.inference_mode(False):
                copied = encode(chunk).clone()  # inference tensors cannot be used in training
            yield copied

    def export(self, folder: Path, max_length: int) -> None:
        """Write the other encoder to the subdirectory `base`, next to the adjustment. Only cse reads this format."""
        with drafted(folder) as draft:
            self.of.export(draft / BASE, max_length)
            self.write(draft)

    def write(self, draft: Path) -> None:
        """Write settings, weights and model card of the adjustment."""
        about = f"The encoder in `base`, adjusted by {self.method}. {self.note}"
        write_own(draft, {"format": self.method, "settings": self.settings(), "note": self.note}, about, self.prompts)
        write_weights(draft / ADJUSTMENT, self.tensors())

    @property
    def note(self) -> str:
        """Text for the model card: the sentences that the adjustment was fitted to."""
        if not self.fitted:
            return "Not adjusted: no evaluator has run, so the adjustment is not fitted."
        if self.fit_on == TARGET:
            return (
                "Adjusted to the sentences of the last evaluator. The run fitted a separate adjustment for each "
                "evaluator, so this model reproduces the scores of that data set only."
            )
        return f"Adjusted to unlabeled sentences of '{self.fit_on or self.file}'."

    @property
    def fitted(self) -> bool:
        """Whether the adjustment is fitted."""
        return bool(self.tensors())

    def adjust(self, vectors: Tensor) -> Tensor:
        """Return the (B, D') adjustment of (B, D) embeddings."""
        raise NotImplementedError

    def fit_vectors(self, vectors: Vectors) -> None:
        """Fit to all chunks of embeddings. Do nothing if there are fewer than two embeddings."""
        raise NotImplementedError

    def tensors(self) -> Mapping[str, Tensor]:
        """Return the fitted tensors by name, or nothing before the fit."""
        raise NotImplementedError

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the tensors that `tensors` returned."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Return the parameters that an encoder needs before `restore`."""
        return {}


Vectors = Callable[[], Iterator[Tensor]]
"""Function that yields the sentence embeddings in chunks, from the first at each call."""
