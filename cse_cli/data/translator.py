"""Any sequence-to-sequence model as a translator: T5 with a prefix, Marian, and models with a target language."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from cse_cli.devices import choose
from registry.errors import CseError, suggestion
from registry.models import digest, load_config, load_tokenizer, locate, quiet_transformers

_LANGUAGE = re.compile(r"^[a-z]{2,3}_[A-Za-z]{2,4}$")


@dataclass(frozen=True)
class Settings:
    """Everything that decides a translation.

    Args:
        model: Name or directory of a sequence-to-sequence model.
        prefix: Text put before every sentence, for T5 or for Marian models with several targets.
        source: Language code of the sentences, for models that know several.
        target: Language code of the translations, for models that know several.
        beams: Width of the beam search; 1 is greedy.
        max_length: Tokens a sentence, and its translation, are cut to.
    """

    model: str
    prefix: str | None = None
    source: str | None = None
    target: str | None = None
    beams: int = 1
    max_length: int = 128


class Translator:
    """Translates sentences in batches of like length; the model is loaded at first use.

    Args:
        settings: Model and languages.
        batch_size: Sentences a batch.
        device: "auto", "cpu", "cuda" or "cuda:N".
    """

    def __init__(self, settings: Settings, batch_size: int = 32, device: str = "auto") -> None:
        self.settings = settings
        self.batch_size = batch_size
        self.compute = choose(device)
        self._config = load_config(settings.model)
        self._check()

    @cached_property
    def identity(self) -> str:
        """What two translations must share to be the same: the model's content and all settings."""
        return repr((digest(locate(self.settings.model)), replace(self.settings, model="")))

    def translate(self, sentences: Sequence[str]) -> list[str]:
        """Return one line a sentence, in order; an empty sentence stays empty."""
        translated = ["" for _ in sentences]
        filled = [index for index, sentence in enumerate(sentences) if sentence.strip()]
        filled.sort(key=lambda index: len(sentences[index]), reverse=True)  # like lengths share a batch: less padding
        for start in range(0, len(filled), self.batch_size):
            places = filled[start : start + self.batch_size]
            for place, line in zip(places, self._batch([sentences[place] for place in places]), strict=True):
                translated[place] = line
        return translated

    def _batch(self, sentences: list[str]) -> list[str]:
        prefix = self.settings.prefix or ""
        inputs = self._tokenizer(
            [prefix + sentence for sentence in sentences],
            return_tensors="pt", padding=True, truncation=True, max_length=self.settings.max_length,
        ).to(self.compute.device)  # fmt: skip
        inputs.pop("token_type_ids", None)
        with torch.inference_mode():
            made = self._model.generate(
                **inputs, **self._target, num_beams=self.settings.beams, do_sample=False,
                max_length=None, max_new_tokens=self.settings.max_length,
            )  # fmt: skip
        return [" ".join(line.split()) for line in self._tokenizer.batch_decode(made, skip_special_tokens=True)]

    def _check(self) -> None:
        """Refuse, before anything is loaded, what could not translate or would translate wrongly."""
        settings, kind = self.settings, self._config.model_type
        if not self._config.is_encoder_decoder:
            raise CseError(
                f"model {settings.model!r} is a {kind}, not a sequence-to-sequence model: it cannot translate",
                "use for example Helsinki-NLP/opus-mt-en-de, facebook/m2m100_418M or google-t5/t5-small",
            )
        if kind == "t5" and settings.prefix is None:
            raise CseError(
                f"model {settings.model!r} is a T5 and has to be told what to do",
                "give --prefix, for example --prefix 'translate English to German: ' (or '' for a fine-tuned one)",
            )
        folder = Path(locate(settings.model))
        if not (folder / "tokenizer.json").is_file() and importlib.util.find_spec("sentencepiece") is None:
            raise CseError(
                f"the tokenizer of model {settings.model!r} needs the package sentencepiece, which is not installed",
                "pip install 'cse-registry[translate]'",
            )

    @cached_property
    def _tokenizer(self) -> Any:
        tokenizer = load_tokenizer(self.settings.model)
        if self.settings.source is not None and hasattr(tokenizer, "src_lang"):
            self._language(tokenizer, self.settings.source, "--from")
            tokenizer.src_lang = self.settings.source
        return tokenizer

    @cached_property
    def _model(self) -> Any:
        from transformers import AutoModelForSeq2SeqLM

        quiet_transformers()
        dtype = torch.bfloat16 if self.compute.precision == "bf16" else torch.float32
        try:
            model = AutoModelForSeq2SeqLM.from_pretrained(
                locate(self.settings.model), dtype=dtype, trust_remote_code=False
            )
        except (OSError, ValueError) as error:
            raise CseError(
                f"model {self.settings.model!r} cannot be loaded: {str(error).strip().partition(chr(10))[0]}"
            ) from error
        return model.to(self.compute.device).eval()

    @cached_property
    def _target(self) -> dict[str, int]:
        """The target language, for models whose first word names it."""
        if not hasattr(self._tokenizer, "src_lang"):
            return {}
        return {"forced_bos_token_id": self._language(self._tokenizer, self.settings.target, "--to")}

    def _language(self, tokenizer: Any, code: str | None, option: str) -> int:
        if hasattr(tokenizer, "lang_code_to_id"):
            codes = dict(tokenizer.lang_code_to_id)
        else:
            named = [token for token in map(str, tokenizer.get_added_vocab()) if _LANGUAGE.match(token)]
            codes = {token: tokenizer.convert_tokens_to_ids(token) for token in named}
        if code is None:
            raise CseError(
                f"model {self.settings.model!r} knows {len(codes)} languages",
                f"say which with {option}, for example {option} {next(iter(codes), 'de')}",
            )
        if code not in codes:
            raise CseError(
                f"{option}: model {self.settings.model!r} has no language {code!r}.{suggestion(code, codes)}",
                f"some that it has: {', '.join(sorted(codes)[:8])}",
            )
        return int(codes[code])
