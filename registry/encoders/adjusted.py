"""Another encoder's vectors, adjusted after the fact: what whitening and flows have in common. Registers nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from registry import catalogue
from registry.encoders.export import OWN_FORMAT, SETTINGS, drafted, write_json
from registry.errors import CseError
from registry.tokens import Encoded, Tokens
from registry.types import Encode, Encoder, Resource

TARGET = "target"
"""Stands for the evaluator's own sentences."""

CHUNK = 8192
"""Sentences held at a time, so that a corpus of any size fits."""


ADJUSTMENT = "adjustment.safetensors"
BASE = "base"


class Adjusted(Encoder):
    """An encoder that adjusts the vectors of another one, which it leaves as it is.

    The other encoder is a part of this one, so that a selected state holds its weights; what is fitted is no part of
    any state, for it is fitted again whenever a state is scored.

    Args:
        of: The encoder whose vectors are adjusted; the recipe declares it before this one.
        fit_on: A data set of the catalogue, or "target": for each evaluator all sentences of its own data set, test
            split included, without labels.
        split: Split of the data set.
        columns: Columns of it that hold sentences.
        limit: Sentences at most; all if left out.
    """

    stateful: ClassVar[bool] = False  # the other encoder's weights are kept under its own name

    method: ClassVar[str]
    """The name it is registered by, for directories that hold it."""

    def __init__(
        self,
        *,
        of: Encoder,
        fit_on: Annotated[str, Resource("dataset", evaluated=TARGET)],
        split: str = "train",
        columns: list[str] = ["text"],  # noqa: B006 - a declaration, never changed
        limit: Annotated[int, Field(ge=2)] | None = None,
    ) -> None:
        super().__init__()
        self.of, self.data = of, FitData(fit_on, split, tuple(columns), limit)
        self.data.require()
        self.fits = "each" if fit_on == TARGET else "once"
        self.dim, self.width, self.max_length, self.vocabulary = of.dim, of.width, of.max_length, of.vocabulary
        self.augment_at, self.memory = of.augment_at, of.memory
        self._fitting = False

    @property
    def eval_pooling(self) -> str:
        """The other encoder's."""
        return str(getattr(self.of, "eval_pooling", ""))

    def fingerprints(self) -> dict[str, str]:
        """Return "dataset/split" → content digest of the corpus; the evaluators give those of their own sentences."""
        return self.data.fingerprints()

    def embed(self, tokens: Tokens) -> Tensor:
        """Return (B, L, W) token vectors, before any dropout."""
        return self.of.embed(tokens)

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:  # noqa: ARG002 - the hook's form
        """Refuse: an adjustment is fitted to finished vectors, when they are scored.

        Raises:
            CseError: Always.
        """
        raise CseError(
            f"no view can go through '{self.method}': it adjusts finished vectors, when they are scored",
            "let views go through the encoder that its `of` names, and name this one in [evaluate] encoder",
        )

    def represent(self, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Return (B, D') the other encoder's vectors, adjusted; in single precision whatever the forward pass used.

        Raises:
            CseError: Nothing was fitted yet.
        """
        return self._adjusted(self.of.represent(tokens, embeddings))

    @property
    def foundation(self) -> Encoder:
        """The other encoder, or the one below that."""
        return self.of.foundation

    def finished(self, vectors: Tensor) -> Tensor:
        """Return them adjusted, as `represent` does."""
        return self._adjusted(self.of.finished(vectors))

    def _adjusted(self, vectors: Tensor) -> Tensor:
        if self._fitting:
            return vectors
        if not self.fitted:
            raise CseError(f"'{self.method}' has not been fitted to any sentences", "score it with an evaluator first")
        with torch.no_grad(), torch.autocast(vectors.device.type, enabled=False):
            return self.adjust(vectors.float())

    def fit(self, encode: Encode, target: Sequence[str]) -> None:
        """Adjust to the data set's sentences, or to those given."""
        self._fitting = True
        try:
            self.fit_vectors(lambda: self.data.vectors(encode, target))
        finally:
            self._fitting = False
        if not self.fitted:
            raise CseError(
                f"'{self.method}' found no two sentences to fit to in '{self.data.dataset}'",
                "give fit_on a larger data set, or raise its limit",
            )

    def export(self, folder: Path, max_length: int) -> None:
        """Write the other encoder below the folder `base`, and what was fitted beside it: a form only cse reads."""
        with drafted(folder) as draft:
            self.of.export(draft / BASE, max_length)
            self.write(draft)

    def write(self, draft: Path) -> None:
        """Write settings, weights and card of the adjustment into `draft`."""
        from safetensors.torch import save_file

        settings = {"schema_version": OWN_FORMAT, "format": self.method, "settings": self.settings(), "note": self.note}
        write_json(draft / SETTINGS, settings)
        weights = {name: value.detach().cpu().contiguous() for name, value in self.tensors().items()}
        save_file(weights, draft / ADJUSTMENT, metadata={"format": "pt"})
        (draft / "README.md").write_text(_CARD.format(method=self.method, note=self.note), encoding="utf-8")

    @property
    def note(self) -> str:
        """What must be known of the adjustment that a saved model holds."""
        if not self.fitted:
            return "Not adjusted: nothing was scored, so nothing was fitted."
        if self.data.dataset == TARGET:
            return (
                "Adjusted to the sentences of the evaluator that was scored last. Every other score of the run comes "
                "from an adjustment of its own, so this model gives the scores of that one data set only."
            )
        return f"Adjusted to unlabelled sentences of '{self.data.dataset}'."

    @property
    def fitted(self) -> bool:
        """Whether there is an adjustment."""
        return bool(self.tensors())

    def adjust(self, vectors: Tensor) -> Tensor:
        """Return the (B, D') adjusted vectors of (B, D)."""
        raise NotImplementedError

    def fit_vectors(self, vectors: Vectors) -> None:
        """Fit to the chunks that each call of `vectors` yields from the start; nothing where there are too few."""
        raise NotImplementedError

    def tensors(self) -> Mapping[str, Tensor]:
        """Return what was fitted, by name; nothing before."""
        raise NotImplementedError

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `tensors` returned; from then on nothing more is fitted."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Return the parameters that `restore` needs to have been built with."""
        return {}


_CARD = """---
tags: [cse]
---
# Sentence encoder, adjusted by {method}

{note}

Only [cse](https://pypi.org/project/cse-registry/) opens this directory: `cse evaluate DIRECTORY`. The folder `base`
holds the encoder before the adjustment.
"""


@dataclass(frozen=True)
class FitData:
    """Where the sentences come from.

    Args:
        dataset: Name in the data catalogue, or "target".
        split: Split of the data set.
        columns: Columns of it that hold sentences, read row by row.
        limit: Sentences at most, the first ones.
    """

    dataset: str
    split: str = "train"
    columns: tuple[str, ...] = ("text",)
    limit: int | None = None

    def require(self) -> None:
        """Check that the data set is here and has the columns, before anything is encoded.

        Raises:
            UnknownNameError: No such data set, split or column.
            MissingError: It is not on this machine and cannot be fetched.
        """
        if self.dataset != TARGET:
            catalogue.locate(self.dataset, self.split).require(self.columns)

    def fingerprints(self) -> dict[str, str]:
        """Return "dataset/split" → content digest; nothing for an evaluator's own sentences."""
        if self.dataset == TARGET:
            return {}
        return {f"{self.dataset}/{self.split}": catalogue.fingerprint(self.dataset, self.split)}

    def vectors(self, encode: Encode, target: Sequence[str]) -> Iterator[Tensor]:
        """Yield (n, D) vectors of the sentences, n ≤ `CHUNK`, in order.

        Args:
            encode: Makes the vectors.
            target: The evaluator's own sentences.
        """
        sentences = islice(self._sentences(target), self.limit)
        while chunk := list(islice(sentences, CHUNK)):
            with torch.inference_mode(False):
                copied = encode(chunk).clone()  # evaluation's own tensors cannot be trained on
            yield copied

    def _sentences(self, target: Sequence[str]) -> Iterator[str]:
        if self.dataset == TARGET:
            yield from target
            return
        for row in catalogue.open_text(self.dataset, self.split):
            yield from (row[column] for column in self.columns)


Vectors = Callable[[], Iterator[Tensor]]
"""Gives the sentences' vectors, chunk by chunk, as often as asked."""
