from types import SimpleNamespace

import pytest

from registry.generators.translate import LANGUAGES, Instruction, find_language, make_instruction
from tests.support.errors import refuses


def pair(source=None, target=None):
    return source, target


T5 = SimpleNamespace(model_type="t5", task_specific_params={
    "summarization": {"prefix": "summarize: "},
    "translation_en_to_de": {"prefix": "translate English to German: "},
    "translation_en_to_fr": {"prefix": "translate English to French: "},
})  # fmt: skip
PLAIN = SimpleNamespace(model_type="t5")
MARIAN = SimpleNamespace(model_type="marian")
WORDS = SimpleNamespace(get_vocab=lambda: {})
ONE_PAIR = SimpleNamespace(source_lang="en", target_lang="de", supported_language_codes=[])
UNTOLD = SimpleNamespace(source_lang=None, target_lang="multiple", supported_language_codes=[])
ROMANCE = SimpleNamespace(
    source_lang="en", target_lang=None, supported_language_codes=[">>fr<<", ">>ita<<", ">>pt_br<<"]
)


class Many:
    """The tokenizer of a model that is told both languages by tokens."""

    def __init__(self, src_lang, *codes):
        self.src_lang, self.lang_code_to_id = src_lang, {code: number for number, code in enumerate(codes)}


NLLB = Many("eng_Latn", "eng_Latn", "deu_Latn", "zho_Hans", "zho_Hant", "yue_Hant", "ast_Latn")
M2M = Many("en", "en", "de", "zh")
TWO = Many("en_XX", "en_XX", "pt_XX", "pt_BR")
MBART = Many("en_XX", "en_XX", "de_DE", "pt_XX")


@pytest.mark.parametrize(("word", "code"), [
    ("de", "de"), ("deu", "de"), ("deu_Latn", "de"), ("German", "de"), ("german", "de"), ("yue", "yue"), ("zho", "zh"),
])  # fmt: skip
def test_a_language_has_several_names(word, code):
    assert find_language(word).code == code


def test_no_two_languages_share_a_name_and_untrained_pairs_are_warned_of():
    assert len({name for known in LANGUAGES for name in (*known, known.flores[:3])}) >= 3 * len(LANGUAGES)
    assert all(find_language(name) is known for known in LANGUAGES for name in known)
    assert find_language("Klingon") is None
    assert find_language("") is None
    made = make_instruction("m", T5, WORDS, None, "es", None)
    assert made.prefix == "translate English to Spanish: "
    assert made.warning == (
        "model 'm' was not trained to translate English to Spanish, only: translation_en_to_de, translation_en_to_fr"
    )
    assert make_instruction("m", PLAIN, WORDS, None, "es", None).warning == ""


@pytest.mark.parametrize(("config", "tokenizer", "languages", "prefix"), [
    (T5, WORDS, pair(target="de"), "translate English to German: "),
    (T5, WORDS, pair(source="eng_Latn", target="French"), "translate English to French: "),
    (T5, WORDS, pair(source="de", target="en"), "translate German to English: "),
    (PLAIN, WORDS, pair(target="de"), "translate English to German: "),
    (PLAIN, WORDS, pair(source="zh", target="yue"), "translate Chinese to Cantonese: "),
    (SimpleNamespace(model_type="mt5"), WORDS, pair(target="de"), "translate English to German: "),
    (SimpleNamespace(model_type="mt5"), WORDS, pair(), ""),
    (MARIAN, ONE_PAIR, pair(), ""),
    (MARIAN, ONE_PAIR, pair(source="English", target="deu"), ""),
    (MARIAN, UNTOLD, pair(target="xx"), ""),
    (MARIAN, ROMANCE, pair(target="fr"), ">>fr<< "),
    (MARIAN, ROMANCE, pair(target="pt"), ">>pt_br<< "),
])  # fmt: skip
def test_the_prefix_follows_model_and_languages(config, tokenizer, languages, prefix):
    assert make_instruction("m", config, tokenizer, *languages, None).prefix == prefix


@pytest.mark.parametrize(("config", "tokenizer"), [(T5, WORDS), (MARIAN, ROMANCE), (MARIAN, ONE_PAIR)])
def test_a_prefix_that_is_given_wins(config, tokenizer):
    assert make_instruction("m", config, tokenizer, None, "ja", "") == Instruction("")
    assert make_instruction("m", config, tokenizer, None, None, "so: ") == Instruction("so: ")


@pytest.mark.parametrize(("tokenizer", "languages", "source", "target"), [
    (NLLB, pair("eng_Latn", "deu_Latn"), "eng_Latn", "deu_Latn"),
    (NLLB, pair(target="de"), "eng_Latn", "deu_Latn"),
    (NLLB, pair(source="zh", target="yue"), "zho_Hans", "yue_Hant"),
    (NLLB, pair("zho_Hant", "ast"), "zho_Hant", "ast_Latn"),
    (M2M, pair(source="zh", target="deu_Latn"), "zh", "de"),
    (MBART, pair(target="German"), "en_XX", "de_DE"),
    (MBART, pair("pt", "en"), "pt_XX", "en_XX"),
])  # fmt: skip
def test_the_languages_are_tokens_of_many_to_many_models(tokenizer, languages, source, target):
    made = make_instruction("m", SimpleNamespace(model_type="m2m_100"), tokenizer, *languages, None)
    assert (made.prefix, made.source) == ("", source)
    assert made.first_token == tokenizer.lang_code_to_id[target]


@pytest.mark.parametrize(("config", "tokenizer", "languages", "problem", "values"), [
    (T5, WORDS, pair(), "no_target_language", ["`to`, for example de", "`prefix`"]),
    (T5, WORDS, pair(target="dee"), "unsupported_language", ["target", "'dee'", "'de'"]),
    (SimpleNamespace(model_type="bart"), WORDS, pair(target="de"), "no_target_language", ["bart", "`prefix`"]),
    (MARIAN, ONE_PAIR, pair(target="fr"), "unsupported_language", ["target", "en to de", "fr"]),
    (MARIAN, ROMANCE, pair(), "no_target_language", ["3 languages", "for example fr"]),
    (PLAIN, NLLB, pair(), "no_target_language", ["6 languages", "for example deu_Latn"]),
    (PLAIN, NLLB, pair(target="deu_Latin"), "unsupported_language", ["'deu_Latn'"]),
    (PLAIN, TWO, pair(target="pt"), "unsupported_language", ["'pt_BR' or 'pt_XX'"]),
    (PLAIN, M2M, pair(source="yue", target="de"), "unsupported_language", ["source", "'yue'"]),
])  # fmt: skip
def test_unsupported_languages_are_errors(config, tokenizer, languages, problem, values):
    with refuses(f"data.{problem}", *values):
        make_instruction("m", config, tokenizer, *languages, None)
