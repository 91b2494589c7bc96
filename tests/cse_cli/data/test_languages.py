from types import SimpleNamespace

import pytest

from cse_cli.data.languages import LANGUAGES, Instruction, Pair, instruction, language
from registry.errors import CseError

T5 = SimpleNamespace(model_type="t5", task_specific_params={
    "summarization": {"prefix": "summarize: "},
    "translation_en_to_de": {"prefix": "translate English to German: "},
    "translation_en_to_fr": {"prefix": "translate English to French: "},
    "translation_en_to_ro": {"prefix": "traduis English to Romanian: "},
})  # fmt: skip
ONE_WAY = SimpleNamespace(model_type="t5", task_specific_params={"translation_en_to_ta": {"prefix": "to Tamil: "}})
PLAIN = SimpleNamespace(model_type="t5")
MARIAN = SimpleNamespace(model_type="marian")
WORDS = SimpleNamespace(get_vocab=lambda: {})
MADLAD = SimpleNamespace(get_vocab=lambda: {"<2de>": 5})
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
    assert language(word).code == code


def test_no_two_languages_share_a_name():
    assert len({name for known in LANGUAGES for name in (*known, known.flores[:3])}) >= 3 * len(LANGUAGES)
    assert all(language(name) is known for known in LANGUAGES for name in known)
    assert language("Klingon") is None
    assert language("") is None


@pytest.mark.parametrize(("config", "tokenizer", "pair", "prefix"), [
    (T5, WORDS, Pair(target="de"), "translate English to German: "),
    (T5, WORDS, Pair(target="ro"), "traduis English to Romanian: "),  # the model's own word for it
    (T5, WORDS, Pair(source="eng_Latn", target="French"), "translate English to French: "),
    (T5, WORDS, Pair(source="de", target="en"), "translate German to English: "),
    (PLAIN, WORDS, Pair(target="de"), "translate English to German: "),
    (PLAIN, WORDS, Pair(text="zh", target="yue"), "translate Chinese to Cantonese: "),
    (PLAIN, WORDS, Pair(source="fr", text="zh", target="de"), "translate French to German: "),
    (PLAIN, MADLAD, Pair(target="de"), "<2de> "),
    (ONE_WAY, WORDS, Pair(), "to Tamil: "),
    (SimpleNamespace(model_type="mt5"), WORDS, Pair(target="de"), "translate English to German: "),
    (SimpleNamespace(model_type="mt5"), WORDS, Pair(), ""),
    (SimpleNamespace(model_type="bart"), WORDS, Pair(), ""),
    (MARIAN, ONE_PAIR, Pair(), ""),
    (MARIAN, ONE_PAIR, Pair(source="English", text="zh", target="deu"), ""),
    (MARIAN, UNTOLD, Pair(target="xx"), ""),
    (MARIAN, ROMANCE, Pair(target="fr"), ">>fr<< "),
    (MARIAN, ROMANCE, Pair(target="it"), ">>ita<< "),
    (MARIAN, ROMANCE, Pair(target="pt"), ">>pt_br<< "),
])  # fmt: skip
def test_the_prefix_follows_model_and_languages(config, tokenizer, pair, prefix):
    assert instruction("m", config, tokenizer, pair, None).prefix == prefix


@pytest.mark.parametrize(("config", "tokenizer"), [(T5, WORDS), (MARIAN, ROMANCE), (MARIAN, ONE_PAIR)])
def test_a_prefix_that_is_given_wins(config, tokenizer):
    assert instruction("m", config, tokenizer, Pair(target="ja"), "") == Instruction("")
    assert instruction("m", config, tokenizer, Pair(), "so: ") == Instruction("so: ")


def test_a_pair_that_a_t5_does_not_name_is_warned_of():
    made = instruction("m", T5, WORDS, Pair(target="es"), None)
    assert made.prefix == "translate English to Spanish: "
    assert made.warning == "model 'm' names translation from en to de, en to fr, en to ro only, not en to es"
    assert instruction("m", PLAIN, WORDS, Pair(target="es"), None).warning == ""


@pytest.mark.parametrize(("tokenizer", "pair", "source", "target"), [
    (NLLB, Pair("eng_Latn", "deu_Latn"), "eng_Latn", "deu_Latn"),
    (NLLB, Pair(target="de"), "eng_Latn", "deu_Latn"),
    (NLLB, Pair(text="zh", target="yue"), "zho_Hans", "yue_Hant"),
    (NLLB, Pair("zho_Hant", "ast"), "zho_Hant", "ast_Latn"),
    (M2M, Pair(text="zh", target="deu_Latn"), "zh", "de"),
    (MBART, Pair(target="German"), "en_XX", "de_DE"),
    (MBART, Pair("pt", "en"), "pt_XX", "en_XX"),
])  # fmt: skip
def test_the_languages_are_tokens_of_many_to_many_models(tokenizer, pair, source, target):
    made = instruction("m", SimpleNamespace(model_type="m2m_100"), tokenizer, pair, None)
    assert (made.prefix, made.source) == ("", source)
    assert made.first_token == tokenizer.lang_code_to_id[target]


@pytest.mark.parametrize(("config", "tokenizer", "pair", "message"), [
    (T5, WORDS, Pair(), r"has to be told what to translate into(.|\n)*--to, one of de, fr, ro; or --prefix"),
    (PLAIN, WORDS, Pair(), r"has to be told(.|\n)*for example --to de; or --prefix"),
    (T5, WORDS, Pair(target="Germn"), r"--to: unknown language 'Germn'. Did you mean 'German'"),
    (T5, WORDS, Pair(source="xx", target="de"), r"--from: unknown language 'xx'"),
    (SimpleNamespace(model_type="bart"), WORDS, Pair(target="de"), r"is a bart, which takes no target language"),
    (MARIAN, ONE_PAIR, Pair(target="fr"), r"--to: model 'm' translates en to de, not fr"),
    (MARIAN, ONE_PAIR, Pair(text="zh"), r"--from: model 'm' translates en to de, not zh"),
    (MARIAN, ROMANCE, Pair(), r"knows 3 languages(.|\n)*--to fr"),
    (MARIAN, ROMANCE, Pair(target="de"), r"--to: model 'm' has no language 'de'"),
    (PLAIN, NLLB, Pair(), r"knows 6 languages(.|\n)*say which with --to"),
    (PLAIN, NLLB, Pair(target="deu_Latin"), r"--to: .* no language 'deu_Latin'. Did you mean 'deu_Latn'"),
    (PLAIN, TWO, Pair(target="pt"), r"--to: .* no language 'pt'. Did you mean 'pt_BR' or 'pt_XX'"),
    (PLAIN, M2M, Pair(text="yue", target="de"), r"--from: model 'm' has no language 'yue'"),
])  # fmt: skip
def test_what_a_model_cannot_do_is_said(config, tokenizer, pair, message):
    with pytest.raises(CseError, match=message):
        instruction("m", config, tokenizer, pair, None)
