"""Translation of sentences by a sequence-to-sequence model of transformers: T5, Marian, M2M100, NLLB or mBART."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field

from registry import GENERATORS
from registry.errors import CseError, RunFailedError, errors_as_one
from registry.generators.languages import Instruction, make_instruction
from registry.resources.model_files import check_files, digest, settings_sha256
from registry.resources.models import load_config, load_tokenizer, locate, quiet_transformers
from registry.types import ColumnGenerator, ModelName

CPU_TOKENS, DEVICE_TOKENS = 4096, 16_384
"""Default size of a batch on a CPU and on an accelerator: sentences × beams × tokens of the longest."""


@GENERATORS.register("translate")
class Translate(ColumnGenerator):
    """Translate each sentence of a column.

    The decoding is greedy or a beam search, without sampling, with the model's own generation settings otherwise.
    Sentences are sorted by length and batched by their number of tokens, so there is little padding. A batch that does
    not fit in the memory of a GPU is halved. Two steps make a back-translation: translate `text` to a column, then
    that column back.

    Doubtful: the papers name neither checkpoint nor decoding (methods/bsl.md BS4).

    Args:
        model: T5, Marian, M2M100, NLLB or mBART model.
        to: Target language, such as "de" or "German". NLLB also takes "deu_Latn". Omit it for a model with one target.
        source: Language of the sentences. Default: English for T5, else that of the model.
        column: Column that is translated.
        prefix: String before every sentence. It replaces the prefix that follows from the languages.
        beams: Width of the beam search. 1 is greedy search.
        max_length: Maximum number of tokens of a sentence and of its translation. Longer sentences are cut.

    Example:
        [data.columns.translation]
        name = "translate"
        model = "google-t5/t5-base"
        to = "de"
    """

    def __init__(
        self,
        model: ModelName,
        to: str | None = None,
        source: str | None = None,
        column: str = "text",
        prefix: str | None = None,
        beams: Annotated[int, Field(ge=1, le=100)] = 1,
        max_length: Annotated[int, Field(ge=8)] = 128,
    ) -> None:
        self.model, self.to, self.column, self.beams, self.max_length = model, to, column, beams, max_length
        config = load_config(model)
        _check_model(model, config)
        self._tokenizer = load_tokenizer(model)
        self.instruction: Instruction = make_instruction(model, config, self._tokenizer, source, to, prefix)
        if self.instruction.source is not None:
            self._tokenizer.src_lang = self.instruction.source
        self.warning = self.instruction.warning
        self.use(torch.device("cpu"), torch.float32)

    @property
    def action(self) -> str:
        """Description for the progress line."""
        return f"translating {self.column}{f' to {self.to}' if self.to else ''}"

    def identity(self) -> str:
        """Return the content of the model and the instruction, which decide the translation of a sentence."""
        directory = locate(self.model)
        generation = directory / "generation_config.json"
        content = (digest(directory), settings_sha256(directory), generation.is_file() and generation.read_text())
        asked = (self.instruction.prefix, self.instruction.source, self.instruction.first_token)
        normalized = importlib.util.find_spec("sacremoses") is not None  # changes the input of Marian
        return repr((content, asked, normalized, self.beams, self.max_length))

    def use(self, device: torch.device, dtype: torch.dtype, batch_tokens: int | None = None) -> None:
        """Move to a device. The model is loaded for the first sentence."""
        self.device, self.dtype = device, dtype
        self.batch_tokens = batch_tokens or (CPU_TOKENS if device.type == "cpu" else DEVICE_TOKENS)
        self.__dict__.pop("_model", None)

    def make(self, cells: Sequence[str], count: Callable[[int], None] | None = None) -> list[str]:
        """Return the translation of each sentence, on one line. `count` gets the size of each finished batch."""
        prefixed = [self.instruction.prefix + cell for cell in cells]
        encoded = self._tokenizer(prefixed, truncation=True, max_length=self.max_length)["input_ids"]
        order = sorted(range(len(cells)), key=lambda row: len(encoded[row]), reverse=True)
        lines = [""] * len(cells)
        while order:
            size = max(1, self.batch_tokens // (self.beams * len(encoded[order[0]])))
            rows, order = order[:size], order[size:]
            made = self._translate_batch([encoded[row] for row in rows])
            if made is None:
                self.batch_tokens = len(rows) // 2 * self.beams * len(encoded[rows[0]])
                order = rows + order
                continue
            for row, line in zip(rows, made, strict=True):
                lines[row] = " ".join(line.split())
            if count is not None:
                count(len(rows))
        return lines

    def _translate_batch(self, encoded: list[list[int]]) -> list[str] | None:
        """Return a line for each sentence, or None if the batch does not fit in memory."""
        inputs = self._tokenizer.pad({"input_ids": encoded}, return_tensors="pt").to(self.device)
        try:
            with torch.inference_mode():
                made = self._model.generate(
                    input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"],
                    forced_bos_token_id=self.instruction.first_token, num_beams=self.beams, do_sample=False,
                    max_length=None, max_new_tokens=self.max_length,
                )  # fmt: skip
        except torch.OutOfMemoryError as error:
            if len(encoded) == 1:
                raise RunFailedError(
                    f"{self.device} has not enough memory to translate a sentence of {len(encoded[0])} tokens",
                    "use a smaller max_length, fewer beams, or the CPU",
                    code="data.out_of_memory",
                ) from error
        else:
            lines: list[str] = self._tokenizer.batch_decode(made, skip_special_tokens=True)
            return lines
        torch.get_device_module(self.device).empty_cache()
        return None

    @cached_property
    def _model(self) -> Any:
        from transformers import AutoModelForSeq2SeqLM

        quiet_transformers()
        path, what = locate(self.model), f"model {self.model!r} cannot be loaded"
        action = "use the name or directory of a translation model"
        with errors_as_one(what, action, CseError, code="data.unreadable_model"):
            check_files(path)
            model = AutoModelForSeq2SeqLM.from_pretrained(path, dtype=self.dtype, trust_remote_code=False)
        return model.to(self.device).eval()


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
