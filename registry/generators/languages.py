"""Instructions for translation models: a prefix for T5, `>>fr<<` for Marian, language tokens for M2M100 and NLLB."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from registry.errors import CseError, suggestion


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

    Args:
        model: Name of the model, for messages.
        config: transformers configuration of the model.
        tokenizer: Tokenizer of the model.
        source: Language of the sentences, or None if it is unknown.
        target: Language to translate into, or None if the model has only one.
        prefix: String before every sentence, given by the user. It replaces the default.

    Raises:
        CseError: If the model does not support a language, or needs one.
    """
    if hasattr(tokenizer, "src_lang"):  # M2M100, NLLB, mBART
        tokens = _language_tokens(tokenizer)
        code = _match(model, source, tokens, "source") if source else str(tokenizer.src_lang)
        return Instruction(prefix or "", code, tokens[_match(model, target, tokens, "target")])
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


def _language_tokens(tokenizer: Any) -> dict[str, int]:
    if hasattr(tokenizer, "lang_code_to_id"):
        return dict(tokenizer.lang_code_to_id)
    added = [str(token) for token in tokenizer.get_added_vocab()]
    return {code: tokenizer.convert_tokens_to_ids(code) for code in added if re.match(r"[a-z]{2,3}_[A-Za-z]+$", code)}


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
    begin, end = _known_language(model, source or "en", "source"), _known_language(model, target, "target")
    trained = [task for task in getattr(config, "task_specific_params", None) or {} if task.startswith("translation_")]
    warning = ""
    if trained and f"translation_{begin.code}_to_{end.code}" not in trained:
        warning = f"model '{model}' was not trained to translate {begin.name} to {end.name}, only: {', '.join(trained)}"
    return Instruction(f"translate {begin.name} to {end.name}: ", warning=warning)


def _known_language(model: str, name: str | None, side: str) -> Language:
    languages = {language.code: language for language in LANGUAGES}
    return languages[_match(model, name, languages, side)]


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
