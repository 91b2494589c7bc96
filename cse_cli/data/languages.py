"""How languages are given to a model: T5 by a prefix, Marian by `>>fr<<`, M2M100 and NLLB by the first token made."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from registry.errors import CseError, suggestion


class Language(NamedTuple):
    """A language: two-letter code (three where it has none), English name, and the code of NLLB and FLORES."""

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
_T5 = ("t5", "mt5", "umt5", "longt5")
_FLORES = re.compile(r"^[a-z]{2,3}_[A-Za-z]{2,4}$")


def language(word: str) -> Language | None:
    """Return the language of a code or an English name: de, deu, deu_Latn and German are one."""
    for known in LANGUAGES:
        if word in (known.code, known.flores, known.flores[:3]) or word.lower() == known.name.lower():
            return known
    return None


@dataclass(frozen=True)
class Pair:
    """The languages asked for.

    Args:
        source: Language of the sentences, as `--from` gives it.
        target: Language of the translations, as `--to` gives it.
        text: Language that the catalogue says the sentences are in, where `--from` is not given.
    """

    source: str | None = None
    target: str | None = None
    text: str | None = None


@dataclass(frozen=True)
class Instruction:
    """What a model gets beside the sentence.

    Args:
        prefix: Text before every sentence.
        source: The tokenizer's `src_lang`.
        first_token: Id of the first token made, which names the target language.
        warning: What the user should know of it.
    """

    prefix: str = ""
    source: str | None = None
    first_token: int | None = None
    warning: str = ""


def instruction(model: str, config: Any, tokenizer: Any, pair: Pair, prefix: str | None) -> Instruction:
    """Return how a model is asked to translate from one language into another.

    Args:
        model: Its name, for messages.
        config: Its transformers configuration.
        tokenizer: Its tokenizer.
        pair: The languages asked for.
        prefix: Text before every sentence that the user gave; takes the place of what would be found.

    Raises:
        CseError: The model does not know a language, or has to be told one.
    """
    if hasattr(tokenizer, "src_lang"):
        return _first_token(model, tokenizer, pair, prefix or "")
    if prefix is not None:
        return Instruction(prefix)
    if config.model_type == "marian":
        return _marian(model, tokenizer, pair)
    if config.model_type == "t5" or (config.model_type in _T5 and pair.target):
        return _t5(model, config, tokenizer, pair)
    if pair.target is not None:
        raise CseError(
            f"--to: model {model!r} is a {config.model_type}, which takes no target language",
            "leave --to out; --prefix gives it a text before every sentence",
        )
    return Instruction()


def _first_token(model: str, tokenizer: Any, pair: Pair, prefix: str) -> Instruction:
    """M2M100, NLLB and mBART: both languages are tokens."""
    if hasattr(tokenizer, "lang_code_to_id"):
        codes = dict(tokenizer.lang_code_to_id)
    else:
        named = [token for token in map(str, tokenizer.get_added_vocab()) if _FLORES.match(token)]
        codes = {token: tokenizer.convert_tokens_to_ids(token) for token in named}
    asked = pair.source or pair.text
    source = _code(model, asked, codes, "--from") if asked else str(tokenizer.src_lang)
    return Instruction(prefix, source, int(codes[_code(model, pair.target, codes, "--to")]))


def _marian(model: str, tokenizer: Any, pair: Pair) -> Instruction:
    """Marian: one pair of languages, or several targets as words such as `>>fr<<`."""
    _check(model, tokenizer, "--from", pair.source or pair.text, tokenizer.source_lang)
    if not tokenizer.supported_language_codes:
        _check(model, tokenizer, "--to", pair.target, tokenizer.target_lang)
    targets = [token[2:-2] for token in tokenizer.supported_language_codes]
    if len(targets) > 1 or (targets and pair.target):
        return Instruction(f">>{_code(model, pair.target, targets, '--to')}<< ")
    return Instruction()


def _check(model: str, tokenizer: Any, option: str, asked: str | None, fixed: str | None) -> None:
    """Refuse another language than the one a model was made for, where its tokenizer's configuration names it."""
    if asked and (known := language(fixed or "")) and language(asked) != known:
        raise CseError(
            f"{option}: model {model!r} translates {tokenizer.source_lang} to {tokenizer.target_lang}, not {asked}",
            f"name a model for that pair of languages, or give {option} {fixed}",
        )


def _t5(model: str, config: Any, tokenizer: Any, pair: Pair) -> Instruction:
    """T5: the prefix of its own configuration, else one made of the languages' names."""
    prefixes: dict[tuple[str, str], str] = {}
    for task, settings in (getattr(config, "task_specific_params", None) or {}).items():
        if (match := re.fullmatch(r"translation_(\w+)_to_(\w+)", task)) and "prefix" in (settings or {}):
            prefixes[match[1], match[2]] = settings["prefix"]
    source = _named(pair.source or pair.text or "en", "--from")
    fitting = {target: prefix for (begin, target), prefix in prefixes.items() if begin == source.code}
    if pair.target is None:
        if len(fitting) == 1:
            return Instruction(next(iter(fitting.values())))
        known = f", one of {', '.join(sorted(fitting))}" if fitting else ", for example --to de"
        raise CseError(
            f"model {model!r} is a T5 and has to be told what to translate into",
            f"give --to{known}; or --prefix ('' for a fine-tuned one)",
        )
    target = _named(pair.target, "--to")
    if target.code in fitting:
        return Instruction(fitting[target.code])
    if f"<2{target.code}>" in tokenizer.get_vocab():  # MADLAD-400
        return Instruction(f"<2{target.code}> ")
    pairs = ", ".join(f"{begin} to {end}" for begin, end in sorted(prefixes))
    warning = f"model {model!r} names translation from {pairs} only, not {source.code} to {target.code}"
    return Instruction(f"translate {source.name} to {target.name}: ", warning=warning if prefixes else "")


def _named(word: str, option: str) -> Language:
    found = language(word)
    if found is None:
        near = suggestion(word, [word for known in LANGUAGES for word in (known.code, known.name)])
        raise CseError(
            f"{option}: unknown language {word!r}.{near}",
            "use a code such as de, or say the whole instruction with --prefix 'translate English to German: '",
        )
    return found


def _code(model: str, word: str | None, codes: Collection[str], option: str) -> str:
    """Return the model's own code of a language that was named in any way."""
    some = ", ".join(sorted(codes)[:8])
    if word is None:
        first = next(iter(codes), "de")
        raise CseError(
            f"model {model!r} knows {len(codes)} languages", f"say which with {option}, for example {option} {first}"
        )
    found = language(word)
    names = [word] if found is None else [word, found.flores, found.code]
    if exact := [name for name in names if name in codes]:
        return exact[0]
    stems = {word} if found is None else {found.code, found.flores[:3]}
    near = [code for code in codes if code.split("_")[0] in stems]
    if len(near) == 1:
        return near[0]
    hint = f" Did you mean {' or '.join(map(repr, sorted(near)[:3]))}?" if near else suggestion(word, codes)
    raise CseError(f"{option}: model {model!r} has no language {word!r}.{hint}", f"some that it has: {some}")
