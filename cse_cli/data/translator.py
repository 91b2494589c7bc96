"""Translation of sentences by a sequence-to-sequence model of transformers: T5, Marian, M2M100, NLLB or mBART."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from cse_cli.core.devices import Compute, choose
from cse_cli.data.languages import Instruction, make_instruction
from registry.errors import CseError, RunFailedError, errors_as_one
from registry.resources.model_files import check_files, digest, settings_sha256
from registry.resources.models import load_config, load_tokenizer, locate, quiet_transformers

VERSION = "3"
"""Part of the identity. Raise it if this module translates the same sentence differently."""


@dataclass(frozen=True)
class TranslationSettings:
    """Settings that decide a translation.

    Args:
        model: Name or directory of a sequence-to-sequence model.
        source: Language of the sentences, or None if it is unknown.
        target: Language to translate into, or None if the model has only one.
        prefix: String before every sentence. It replaces the prefix that follows from the languages.
        beams: Width of the beam search. 1 is greedy search.
        max_length: Maximum number of tokens of a sentence and of its translation.
    """

    model: str
    source: str | None = None
    target: str | None = None
    prefix: str | None = None
    beams: int = 1
    max_length: int = 128


class Translator:
    """Translator of sentences. The model is loaded for the first sentence.

    Args:
        device: "auto", "cpu", "cuda" or "cuda:N".
        batch_tokens: Maximum size of a batch: sentences × beams × tokens of the longest. None chooses a size for the
            device. A batch that does not fit in the memory of a GPU is halved.

    Raises:
        CseError: If the model cannot translate between these languages.
    """

    def __init__(self, settings: TranslationSettings, device: str = "auto", batch_tokens: int | None = None) -> None:
        self.settings = settings
        self.device = device
        self.given_batch_tokens = batch_tokens
        config = load_config(settings.model)
        _check_model(settings.model, config)
        self._tokenizer = load_tokenizer(settings.model)
        self.instruction: Instruction = make_instruction(
            settings.model, config, self._tokenizer, settings.source, settings.target, settings.prefix
        )
        if self.instruction.source is not None:
            self._tokenizer.src_lang = self.instruction.source

    def __reduce__(self) -> Any:
        return Translator, (self.settings, self.device, self.given_batch_tokens)

    @cached_property
    def identity(self) -> str:
        """Everything that decides the translation of a sentence: content of the model and instruction."""
        directory = locate(self.settings.model)
        generation = directory / "generation_config.json"
        content = (digest(directory), settings_sha256(directory), generation.is_file() and generation.read_text())
        asked = (self.instruction.prefix, self.instruction.source, self.instruction.first_token)
        normalized = importlib.util.find_spec("sacremoses") is not None  # changes the input of Marian
        return repr((VERSION, content, asked, normalized, self.settings.beams, self.settings.max_length))

    def translate(self, sentences: Sequence[str], count: Callable[[int], None] | None = None) -> list[str]:
        """Return the translation of each sentence, on one line. `count` gets the size of each finished batch."""
        prefixed = [self.instruction.prefix + sentence for sentence in sentences]
        encoded = self._tokenizer(prefixed, truncation=True, max_length=self.settings.max_length)["input_ids"]
        order = sorted(range(len(sentences)), key=lambda row: len(encoded[row]), reverse=True)
        lines = [""] * len(sentences)
        while order:
            size = max(1, self.batch_tokens // (self.settings.beams * len(encoded[order[0]])))
            rows, order = order[:size], order[size:]
            made = self._translate_batch([encoded[row] for row in rows])
            if made is None:
                self.batch_tokens = len(rows) // 2 * self.settings.beams * len(encoded[rows[0]])
                order = rows + order
                continue
            for row, line in zip(rows, made, strict=True):
                lines[row] = " ".join(line.split())
            if count is not None:
                count(len(rows))
        return lines

    def _translate_batch(self, encoded: list[list[int]]) -> list[str] | None:
        """Return a line for each sentence, or None if the batch does not fit in memory."""
        inputs = self._tokenizer.pad({"input_ids": encoded}, return_tensors="pt").to(self.compute.device)
        try:
            with torch.inference_mode():
                made = self._model.generate(
                    input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"],
                    forced_bos_token_id=self.instruction.first_token, num_beams=self.settings.beams, do_sample=False,
                    max_length=None, max_new_tokens=self.settings.max_length,
                )  # fmt: skip
        except torch.OutOfMemoryError as error:
            if len(encoded) == 1:
                raise RunFailedError(
                    f"{self.compute.describe()} has not enough memory to translate a sentence of "
                    f"{len(encoded[0])} tokens",
                    "use a smaller --max-length, fewer --beams, or --device cpu",
                    code="data.out_of_memory",
                ) from error
        else:
            lines: list[str] = self._tokenizer.batch_decode(made, skip_special_tokens=True)
            return lines
        torch.cuda.empty_cache()
        return None

    @cached_property
    def batch_tokens(self) -> int:
        """Current maximum size of a batch."""
        return self.given_batch_tokens or (4096 if self.compute.device.type == "cpu" else 16384)

    @cached_property
    def compute(self) -> Compute:
        """Device and precision."""
        return choose(self.device)

    @cached_property
    def _model(self) -> Any:
        from transformers import AutoModelForSeq2SeqLM

        quiet_transformers()
        dtype = torch.bfloat16 if self.compute.precision == "bf16" else torch.float32
        path, what = locate(self.settings.model), f"model {self.settings.model!r} cannot be loaded"
        action = "use the name or directory of a translation model"
        with errors_as_one(what, action, CseError, code="data.unreadable_model"):
            check_files(path)
            model = AutoModelForSeq2SeqLM.from_pretrained(path, dtype=dtype, trust_remote_code=False)
        return model.to(self.compute.device).eval()


def _check_model(model: str, config: Any) -> None:
    """Check that a model can translate and that its tokenizer can be loaded."""
    if not config.is_encoder_decoder:
        raise CseError(
            f"model '{model}' is a {config.model_type} model, which cannot translate",
            "use a sequence-to-sequence model, for example Helsinki-NLP/opus-mt-en-de or google-t5/t5-small",
            code="data.not_a_translation_model",
        )
    if not (Path(locate(model)) / "tokenizer.json").is_file() and importlib.util.find_spec("sentencepiece") is None:
        raise CseError(
            f"the tokenizer of model '{model}' requires the package sentencepiece",
            "pip install 'cse-registry[translate]'",
            code="data.no_sentencepiece",
        )
