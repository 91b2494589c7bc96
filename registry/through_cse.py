"""Module of sentence-transformers that computes embeddings through cse, for encoders that only cse opens.

    SentenceTransformer("RUN/model", trust_remote_code=True)

The argument permits the import of this module. No code of the directory is executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from sentence_transformers.base.modules import InputModule
from sentence_transformers.util import load_dir_path

from registry.encoders.saved import open_encoder
from registry.types import Encoder
from registry.vocabulary import in_evaluation


class CseEncoder(InputModule):  # type: ignore[misc]
    """Only module of a `SentenceTransformer`. It encodes as evaluation does, and is not for training."""

    def __init__(self, encoder: Encoder, max_seq_length: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.max_seq_length = min(max_seq_length, encoder.max_length or max_seq_length)

    def preprocess(self, inputs: Sequence[str], prompt: str | None = None, **_: Any) -> dict[str, Any]:
        """Return the tokens of sentences with a prompt before each."""
        vocabulary = self.encoder.vocabulary
        texts = [(prompt or "") + text for text in in_evaluation(vocabulary, inputs)]
        tokens = vocabulary.pad(vocabulary.ids(texts, self.max_seq_length))
        return {"input_ids": tokens.ids, "attention_mask": tokens.mask, "tokens": tokens}

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add the (B, D) sentence embeddings."""
        vectors = self.encoder.encode_for_eval(features["tokens"].to(features["input_ids"].device))
        return {**features, "sentence_embedding": F.normalize(vectors) if self.encoder.normalizes else vectors}

    def get_embedding_dimension(self) -> int:
        """Return D."""
        return self.encoder.dim

    def save(self, output_path: str, **_: Any) -> None:
        """Write an export of the encoder."""
        self.encoder.export(Path(output_path), self.max_seq_length)

    @classmethod
    def load(cls, model_name_or_path: str, **given: Any) -> CseEncoder:
        """Return the encoder in a directory or a repository of the Hub."""
        kept = {key: given[key] for key in ("token", "cache_folder", "revision", "local_files_only") if key in given}
        return cls(*open_encoder(str(load_dir_path(model_name_or_path, "", **kept))))
