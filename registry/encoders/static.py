"""Static distillation: a table with one vector for each token of another model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from registry import ENCODERS
from registry.encoders.averages import TokenAverage, inverse_frequency, zipf
from registry.encoders.export import MODULES, OWN_FORMAT, SETTINGS, drafted, usage, write_json, write_weights
from registry.encoders.transformer import TransformerEncoder
from registry.errors import CseError
from registry.tokens import Pieces
from registry.types import BuiltIn, ModelName
from registry.vocabulary import BareVocabulary

WEIGHTS = "model.safetensors"


class StaticAverage(TokenAverage):
    """Encoder that averages the vectors of a sentence's tokens, as `StaticEmbedding` of sentence-transformers does."""

    vocabulary: BareVocabulary

    def __init__(self, model: str, table: Tensor, frozen: bool) -> None:
        super().__init__(BareVocabulary(model), table, frozen)
        self.model = model

    def export(self, folder: Path, max_length: int) -> None:
        """Write a directory that sentence-transformers loads as one module `StaticEmbedding`."""
        tokenizer = self.vocabulary.tokenizer
        with drafted(folder) as draft:
            write_weights(draft / WEIGHTS, {"embedding.weight": self.table}, marked=False)
            tokenizer.backend_tokenizer.enable_truncation(max_length)
            try:
                tokenizer.save_pretrained(draft)
            finally:
                tokenizer.backend_tokenizer.no_truncation()
            write_json(draft / MODULES, [{"idx": 0, "name": "0", "path": "", "type": _MODULE}])
            settings = {
                "schema_version": OWN_FORMAT,
                "format": "static",
                "origin": self.model,
                "max_length": max_length,
            }
            write_json(draft / SETTINGS, settings)
            self.prompts.write(draft)
            text = _CARD.format(**settings, usage=usage("this/directory", self.prompts))
            (draft / "README.md").write_text(text, encoding="utf-8")

    @classmethod
    def open(cls, folder: Path, settings: Mapping[str, Any]) -> StaticAverage:  # noqa: ARG003 - the hook's form
        """Return the encoder that `export` wrote to a directory."""
        from safetensors.torch import load_file

        return StaticAverage(str(folder), load_file(folder / WEIGHTS)["embedding.weight"], frozen=False)


_MODULE = "sentence_transformers.models.StaticEmbedding"

_CARD = """---
pipeline_tag: sentence-similarity
library_name: sentence-transformers
tags: [sentence-transformers, cse]
---
# Static sentence encoder

Distilled by cse from `{origin}`: the mean of one vector per token, at most
{max_length} tokens. Compare its embeddings by cosine.

{usage}

`cse evaluate DIRECTORY` scores it.
"""


@ENCODERS.register("static")
class Static(StaticAverage):
    """Average one vector per token, which another model computed for the token without a sentence.

    s = (1/n)·Σₜ wₜ·P(m(t)), where m(t) is the embedding of the token t by the model `model`, with special tokens around
    it, and P the projection onto the first `dim` principal components of all m(t). wₜ = a/(a + pₜ) is the weight of SIF
    with the probability pₜ ∝ 1/(r + 1) of Zipf's law, where r = 1, 2, … is the rank of the token in the vocabulary:
    tokenizers list frequent tokens first. The tokens are those of the vocabulary without [unused…] and the special
    tokens, except [PAD] and [UNK]. These two have ranks, as in model2vec, but their vectors are 0.

    The table is computed when the encoder is built, and the model is then released. It can be trained. A sentence needs
    no special tokens and no position embeddings, and its length has no limit.

    Shapes: ids (B, L) → (B, L, D) → (B, D).

    Source: Model2Vec and its code (MinishLab/model2vec @c901407, model2vec/distill). Settled in methods/static.md:
    signs of the components (ST1), the unknown token (ST2).

    Args:
        model: Directory, name under $CSE_MODELS, model shipped with cse, or Hub ID.
        pooling: Pooling of the model for a single token: "mean" of [CLS], the token and [SEP], as in model2vec.
        dim: Number D of principal components. Default: the model's own vectors, without a projection.
        sif: Constant a of the weights. Default: no weights.
        frozen: Whether the vectors are not trained.

    Example:
        [encoders.online]
        name = "static"
        model = "sentence-transformers/all-MiniLM-L6-v2"
        dim = 256
        sif = 1e-4
    """

    def __init__(
        self,
        model: ModelName,
        pooling: BuiltIn = "mean",
        dim: Annotated[int, Field(ge=1)] | None = None,
        sif: Annotated[float, Field(gt=0, lt=1)] | None = None,
        frozen: bool = False,
    ) -> None:
        teacher = TransformerEncoder(model, pooling=pooling)
        tokenizer = teacher.vocabulary.tokenizer
        without_meaning = {place for place in (tokenizer.pad_token_id, tokenizer.unk_token_id) if place is not None}
        left_out = set(tokenizer.added_tokens_decoder) - without_meaning
        names = sorted((place, name) for name, place in tokenizer.get_vocab().items())
        kept = [place for place, name in names if place not in left_out and not _UNUSED.match(name)]
        rows = [Pieces((token,)) for token in kept]  # each token in a separate sentence
        chunks = (teacher.vocabulary.assemble(rows[start : start + _CHUNK]) for start in range(0, len(rows), _CHUNK))
        vectors = torch.cat([teacher.encode_for_eval(chunk) for chunk in chunks])
        if dim is not None:
            vectors = principal(vectors, dim)
        if sif is not None:
            vectors = vectors * inverse_frequency(zipf(len(kept), first=2), sif).to(vectors.dtype)[:, None]
        table = torch.zeros(teacher.vocabulary.size, vectors.shape[1])
        table[kept] = vectors.float()
        table[list(without_meaning)] = 0
        super().__init__(model, table, frozen)


_UNUSED = re.compile(r"\[unused\d+\]")
_CHUNK = 256


def principal(vectors: Tensor, count: int) -> Tensor:
    """Return the coordinates (n, count) of vectors (n, D) minus their mean along the directions of most variance.

    Of the coordinates along each direction, the one with the largest absolute value is positive.
    """
    if count > min(vectors.shape):
        raise CseError(
            f"static: dim = {count} is larger than the number of directions of {len(vectors)} vectors with "
            f"{vectors.shape[1]} dimensions",
            f"use dim ≤ {min(vectors.shape)}",
            code="encoders.too_many_directions",
        )
    centered = vectors.double() - vectors.double().mean(dim=0)
    coordinates: Tensor = centered @ torch.linalg.eigh(centered.T @ centered)[1].flip(1)[:, :count]
    return coordinates * coordinates.gather(0, coordinates.abs().argmax(dim=0, keepdim=True)).sign()
