"""A trained encoder for other programs, with conversions for sentence-transformers and transformers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cse_cli.core.devices import choose
from cse_cli.evaluation.encoder import SentenceEncoder
from cse_cli.runs.record import model_of_run
from registry.encoders.saved import open_encoder
from registry.errors import CseError, MissingError
from registry.prompts import Side, parse_prompts
from registry.resources.models import is_native, loading_options, locate
from registry.types import Encoder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Model:
    """A trained encoder.

    Args:
        folder: Directory of its files.
        encoder: Module in eval mode on the CPU. `encoder.to("cuda")` moves it.
        max_length: Maximum number of tokens per sentence.
        precision: Precision of the method `encode`.
    """

    folder: Path
    encoder: Encoder
    max_length: int
    precision: str = "fp32"

    def encode(
        self, sentences: str | Sequence[str], batch_tokens: int | None = None, side: Side | None = None
    ) -> np.ndarray:
        """Return the embeddings from which scores are computed. The model's prompt is in front of every sentence.

        Args:
            sentences: One sentence or several.
            batch_tokens: Maximum number of tokens per batch, including padding. None selects the device's default.
            side: "query" or "document" for the prompt, and for the modules of a router.

        Returns:
            (D,) float32 for one sentence, (N, D) for several.

        Raises:
            CseError: If something is not a string.
        """
        several = list(sentences) if isinstance(sentences, Iterable) and not isinstance(sentences, str) else [sentences]
        for place, sentence in enumerate(several):
            if not isinstance(sentence, str):
                raise CseError(
                    f"sentences[{place}] = {sentence!r} is of type {type(sentence).__name__}, not a string",
                    "remove it, or convert it with str()",
                    code="model.not_a_string",
                )
        device = next((str(weights.device) for weights in self.encoder.parameters()), "cpu")
        encode = SentenceEncoder(self.encoder, choose(device, self.precision), batch_tokens, self.max_length)
        vectors: np.ndarray = encode(several, side).numpy()
        return vectors[0] if isinstance(sentences, str) else vectors

    def to_sentence_transformers(self) -> SentenceTransformer:
        """Return the same encoder as a `SentenceTransformer` with equal embeddings, which cse computes if need be.

        Raises:
            MissingError: If sentence-transformers is not installed.
        """
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise MissingError(
                "sentence-transformers is not installed",
                "pip install sentence-transformers, or use the method `encode`",
                code="model.missing_package",
            ) from error
        if is_native(self.folder):
            return SentenceTransformer(str(self.folder), trust_remote_code=False)
        from registry.through_cse import CseEncoder

        module, prompts = CseEncoder(self.encoder, self.max_length), self.encoder.prompts
        return SentenceTransformer(
            modules=[module], prompts=dict(prompts.named), default_prompt_name=prompts.default, trust_remote_code=False
        )

    def to_transformers(self) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Return the transformer without pooling and heads, and its tokenizer.

        Raises:
            CseError: If the encoder is not a transformer.
        """
        from transformers import AutoConfig, AutoModel, AutoTokenizer

        if not (self.folder / "config.json").is_file():
            raise CseError(
                f"the encoder in '{self.folder}' is not a transformer",
                "use the method `encode`",
                code="model.no_transformer",
            )
        options = loading_options(AutoConfig.from_pretrained(self.folder, trust_remote_code=False))
        model = AutoModel.from_pretrained(self.folder, trust_remote_code=False, **options)
        return model, AutoTokenizer.from_pretrained(self.folder, trust_remote_code=False)


def load_model(
    name: str | Path,
    pooling: str | None = None,
    template: str | None = None,
    precision: str = "fp32",
    prompts: str | Sequence[str] = (),
) -> Model:
    """Return the model of a finished run, or any other encoder.

    Args:
        name: Prefix of a run's ID, a directory, a name in `$CSE_MODELS`, or a Hub ID.
        pooling: "cls", "mean", "last2", "first_last", "avg_first_last", "mask", "last_mask", "last" or "weighted_mean".
            None selects the model's own.
        template: Text around every sentence. "{text}" is the sentence, "{mask}" the token that pooling "mask" reads.
        precision: "fp32", "bf16", "fp16" or "auto", in which the method `encode` computes.
        prompts: Text in front of every sentence, or the name of one of the model's prompts. "query=TEXT" and
            "document=TEXT" set it for one side of retrieval. Default: the model's own.

    Raises:
        MissingError: If the model is not on this machine and cannot be downloaded.
        CseError: If the pooling of the model is unknown.
    """
    found = model_of_run(str(name)) or str(name)
    encoder, max_length = open_encoder(found, pooling, template)
    given = (prompts,) if isinstance(prompts, str) else prompts
    encoder.prompts = encoder.prompts.replaced(parse_prompts(given))
    return Model(locate(found), encoder, max_length, precision)
