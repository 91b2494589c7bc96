"""A trained encoder for other programs: sentences in, vectors out, or as the object of another library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cse_cli.core.devices import choose
from cse_cli.evaluation.encoder import SentenceEncoder
from cse_cli.runs.model import checked_model_of_run
from registry.encoders.export import MODULES
from registry.encoders.saved import open_encoder
from registry.errors import CseError, MissingError
from registry.models import locate, without_pooler
from registry.types import Encoder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Model:
    """A trained encoder.

    Args:
        folder: Where its files lie.
        encoder: The module, in eval mode on the CPU; `encoder.to("cuda")` moves it.
        max_length: Tokens a sentence is cut to.
    """

    folder: Path
    encoder: Encoder
    max_length: int

    def encode(self, sentences: str | Sequence[str], batch_tokens: int | None = None) -> np.ndarray:
        """Return the sentence vectors that scores are computed from.

        Args:
            sentences: One, or several.
            batch_tokens: Most tokens an encoding batch, padding included; None for what suits the device.

        Returns:
            (D,) float32 for one sentence, (N, D) for several.
        """
        device = next((str(weights.device) for weights in self.encoder.parameters()), "cpu")
        encode = SentenceEncoder(self.encoder, choose(device, "fp32"), batch_tokens, self.max_length)
        vectors: np.ndarray = encode([sentences] if isinstance(sentences, str) else list(sentences)).numpy()
        return vectors[0] if isinstance(sentences, str) else vectors

    def to_sentence_transformers(self) -> SentenceTransformer:
        """Return the same encoder as a `SentenceTransformer`; its vectors are equal.

        Raises:
            MissingError: sentence-transformers is not installed.
            CseError: It has no such form: averages of word vectors, whitening, flows.
        """
        if not (self.folder / MODULES).is_file():
            raise CseError(f"{self.folder} has no form that sentence-transformers knows", "use `encode` of this object")
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise MissingError(
                "sentence-transformers is not installed", "pip install sentence-transformers, or use `encode`"
            ) from error
        return SentenceTransformer(str(self.folder), trust_remote_code=False)

    def to_transformers(self) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Return the transformer without pooling and heads, and its tokenizer.

        Raises:
            CseError: It is no transformer.
        """
        from transformers import AutoConfig, AutoModel, AutoTokenizer

        if not (self.folder / "config.json").is_file():
            raise CseError(f"{self.folder} holds no transformer", "use `encode` of this object")
        without: dict[str, Any] = without_pooler(AutoConfig.from_pretrained(self.folder, trust_remote_code=False))
        model = AutoModel.from_pretrained(self.folder, trust_remote_code=False, **without)
        return model, AutoTokenizer.from_pretrained(self.folder, trust_remote_code=False)


def load_model(name: str | Path, pooling: str | None = None, template: str | None = None) -> Model:
    """Return the model of a finished run, or any other encoder.

    Args:
        name: The first characters of a run's id; or a directory, a name under `$CSE_MODELS`, a hub id.
        pooling: "cls", "mean", "last2", "first_last", "mask", "last_mask", "last" or "weighted_mean"
            instead of what the model says.
        template: Text around every sentence, "{text}" its place and "{mask}" what pooling "mask" reads.

    Raises:
        MissingError: It is not on this machine and cannot be fetched.
        CseError: Its sentence vectors are made in a way that is not known, or a run's model has changed.
    """
    found = checked_model_of_run(str(name)) or str(name)
    encoder, max_length = open_encoder(found, pooling, template)
    return Model(locate(found), encoder, max_length)
