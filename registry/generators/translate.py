"""Translation of sentences by a sequence-to-sequence model of transformers: T5, Marian, M2M100, NLLB or mBART.

The instruction of a model is a prefix for T5, `>>fr<<` for Marian, and language tokens for M2M100 and NLLB.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import torch
from pydantic import Field

from registry import GENERATORS
from registry.errors import CseError, RunFailedError, errors_as_one, install_command, suggestion
from registry.resources.models import (
    check_files,
    load_config,
    load_tokenizer,
    locate,
    quiet_transformers,
    settings_sha256,
    weights_sha256,
)
from registry.types import ColumnGenerator, ModelName


class Language(NamedTuple):
    """A language: code of two letters (or three), English name, and code of NLLB and FLORES."""

    code: str
    name: str
    flores: str


_TABLE = """
ar Arabic arb_Arab; bg Bulgarian bul_Cyrl; bn Bengali ben_Beng; ca Catalan cat_Latn; cs Czech ces_Latn;
da Danish dan_Latn; de German deu_Latn; el Greek ell_Grek; en English eng_Latn; es Spanish spa_Latn;
et Estonian est_Latn; fa Persian pes_Arab; fi Finnish fin_Latn; fr French fra_Latn; he Hebrew heb_Hebr;
hi Hindi hin_Deva; hr Croatian hrv_Latn; hu Hungarian hun_Latn; id Indonesian ind_Latn; it Italian ita_Latn;
ja Japanese jpn_Jpan; ko Korean kor_Hang; lt Lithuanian lit_Latn; lv Latvian lvs_Latn; ms Malay zsm_Latn;
nl Dutch nld_Latn; no Norwegian nob_Latn; pl Polish pol_Latn; pt Portuguese por_Latn; ro Romanian ron_Latn;
ru Russian rus_Cyrl; sk Slovak slk_Latn; sl Slovenian slv_Latn; sr Serbian srp_Cyrl; sv Swedish swe_Latn;
sw Swahili swh_Latn; ta Tamil tam_Taml; th Thai tha_Thai; tr Turkish tur_Latn; uk Ukrainian ukr_Cyrl;
ur Urdu urd_Arab; vi Vietnamese vie_Latn; yue Cantonese yue_Hant; zh Chinese zho_Hans
"""
LANGUAGES = tuple(Language(*row.split()) for row in _TABLE.strip().split(";"))


def find_language(name: str) -> Language | None:
    """Return the language with a code or an English name. de, deu, deu_Latn and German are the same language."""
    for language in LANGUAGES:
        if name.lower() in (language.code, language.flores.lower(), language.flores[:3], language.name.lower()):
            return language
    return None


@dataclass(frozen=True)
class Instruction:
    """Input of a model apart from the sentence.

    Args:
        prefix: String before every sentence.
        source: `src_lang` of the tokenizer.
        first_token: ID of the first generated token, which stands for the target language.
        warning: Warning for the user, or "".
    """

    prefix: str = ""
    source: str | None = None
    first_token: int | None = None
    warning: str = ""


def make_instruction(
    model: str, config: Any, tokenizer: Any, source: str | None, target: str | None, prefix: str | None
) -> Instruction:
    """Return the instruction that makes a model translate between two languages.

    A `prefix` of the user replaces the default. A model with only one target needs no `target`.
    """
    if hasattr(tokenizer, "src_lang"):  # M2M100, NLLB, mBART
        if hasattr(tokenizer, "lang_code_to_id"):
            tokens = dict(tokenizer.lang_code_to_id)
        else:
            added = (str(token) for token in tokenizer.get_added_vocab())
            codes = [code for code in added if re.match(r"[a-z]{2,3}_[A-Za-z]+$", code)]
            tokens = {code: tokenizer.convert_tokens_to_ids(code) for code in codes}
        code = _match(model, source, tokens, "source") if source else str(tokenizer.src_lang)
        return Instruction(prefix or "", code, tokens[_match(model, target, tokens, "target")])
    if config.model_type in ("m2m_100", "mbart"):
        raise CseError(
            f"transformers opens the tokenizer of model '{model}' without its languages",
            "install transformers 5.6 or later, with the class in tokenizer_config.json, such as NllbTokenizer",
            code="data.tokenizer_without_languages",
        )
    if prefix is not None:
        return Instruction(prefix)
    if config.model_type == "marian":
        return _marian_instruction(model, tokenizer, source, target)
    if config.model_type == "t5" or ("t5" in config.model_type and target):
        return _t5_instruction(model, config, source, target)
    if target is not None:
        raise CseError(
            f"target language '{target}': model '{model}' is a {config.model_type} model, which has no target language",
            "omit the target language; set `prefix` to add a string before every sentence",
            code="data.no_target_language",
        )
    return Instruction()


def _marian_instruction(model: str, tokenizer: Any, source: str | None, target: str | None) -> Instruction:
    """Return the instruction for one pair of languages, or for several targets such as `>>fr<<`."""
    targets = [token[2:-2] for token in tokenizer.supported_language_codes]
    fixed = [("source", source, tokenizer.source_lang)]
    if not targets:
        fixed.append(("target", target, tokenizer.target_lang))
    for side, given, own in fixed:
        if given and (known := find_language(own or "")) and find_language(given) != known:
            raise CseError(
                f"{side} language: model '{model}' translates {tokenizer.source_lang} to {tokenizer.target_lang}, "
                f"not {given}",
                f"use another model, or the {side} language {own}",
                code="data.unsupported_language",
            )
    if len(targets) > 1 or (targets and target):
        return Instruction(f">>{_match(model, target, targets, 'target')}<< ")
    return Instruction()


def _t5_instruction(model: str, config: Any, source: str | None, target: str | None) -> Instruction:
    """Return the prefix of Raffel et al. (JMLR 2020, appendix D): "translate English to German: "."""
    known = {language.code: language for language in LANGUAGES}
    begin, end = known[_match(model, source or "en", known, "source")], known[_match(model, target, known, "target")]
    trained = [task for task in getattr(config, "task_specific_params", None) or {} if task.startswith("translation_")]
    warning = ""
    if trained and f"translation_{begin.code}_to_{end.code}" not in trained:
        warning = f"model '{model}' was not trained to translate {begin.name} to {end.name}, only: {', '.join(trained)}"
    return Instruction(f"translate {begin.name} to {end.name}: ", warning=warning)


def _match(model: str, name: str | None, codes: Collection[str], side: str) -> str:
    """Return the model's code of a language that is given by any of its names."""
    known = sorted(codes)
    if name is None:
        example = next((code for code in known if code in ("de", "deu_Latn", "de_DE")), known[0])
        raise CseError(
            f"model '{model}' supports {len(known)} languages and needs a target language",
            f"set the target language `to`, for example {example}, or `prefix` for a fine-tuned T5 model",
            code="data.no_target_language",
        )
    language = find_language(name)
    names = [name] if language is None else [name, language.flores, language.code]
    for exact in names:
        if exact in codes:
            return exact
    stems = {name} if language is None else {language.code, language.flores[:3]}
    near = [code for code in known if code.split("_")[0] in stems]
    if len(near) == 1:
        return near[0]
    hint = f" Did you mean {' or '.join(map(repr, near[:3]))}?" if near else suggestion(name, known)
    raise CseError(
        f"{side} language: model '{model}' does not support '{name}'.{hint}",
        f"use a language such as {', '.join(known[:5])}",
        code="data.unsupported_language",
    )


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
        if not config.is_encoder_decoder:
            raise CseError(
                f"model '{model}' is a {config.model_type} model, which cannot translate",
                "use a sequence-to-sequence model, for example Helsinki-NLP/opus-mt-en-de or google-t5/t5-small",
                code="data.not_a_translation_model",
            )
        if not (locate(model) / "tokenizer.json").is_file() and importlib.util.find_spec("sentencepiece") is None:
            raise CseError(
                f"the tokenizer of model '{model}' requires the package sentencepiece",
                f"run `{install_command('translate')}`",
                code="data.no_sentencepiece",
            )
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
        content = weights_sha256(directory), settings_sha256(directory)
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
