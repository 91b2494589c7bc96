import importlib.util

import pytest

from cse_cli.data import translator as module
from cse_cli.data.translator import Settings, Translator
from registry.errors import CseError
from tests.cse_cli.seq2seq import SENTENCES, tiny_m2m100, tiny_marian, tiny_nllb, tiny_t5
from tests.tiny import tiny_bert

needs_sentencepiece = pytest.mark.skipif(
    importlib.util.find_spec("sentencepiece") is None, reason="the extra `translate` is not installed"
)
PREFIX = "translate English to German: "


def settings(model, **more):
    return Settings(str(model), max_length=12, **more)


FAMILIES = [
    pytest.param(tiny_t5, {"prefix": PREFIX}, id="t5"),
    pytest.param(tiny_nllb, {"source": "eng_Latn", "target": "deu_Latn"}, id="nllb"),
    pytest.param(tiny_marian, {}, id="marian", marks=needs_sentencepiece),
    pytest.param(tiny_m2m100, {"source": "en", "target": "de"}, id="m2m100", marks=needs_sentencepiece),
]


@pytest.mark.parametrize(("family", "options"), FAMILIES)
def test_every_family_translates_in_order_whatever_the_batch(tmp_path, family, options):
    model = settings(family(tmp_path), **options)
    whole = Translator(model, batch_size=8, device="cpu").translate([*SENTENCES, "", "  "])
    assert len(whole) == len(SENTENCES) + 2
    assert whole[-2:] == ["", ""]
    assert any(whole)
    single = Translator(model, batch_size=1, device="cpu").translate(SENTENCES)
    assert single == whole[: len(SENTENCES)]
    assert not any("\t" in line or "\n" in line for line in whole)


@pytest.mark.parametrize(("family", "options"), FAMILIES[1:2] + FAMILIES[3:])
def test_a_target_language_is_the_first_word_made(tmp_path, monkeypatch, family, options):
    made = Translator(settings(family(tmp_path), **options), device="cpu")
    begun = []
    generate = made._model.generate

    def listen(**inputs):
        out = generate(**inputs)
        begun.extend(out[:, 1].tolist())
        return out

    monkeypatch.setattr(made._model, "generate", listen)
    made.translate(SENTENCES[:2])
    assert begun == [made._target["forced_bos_token_id"]] * 2
    first = made._tokenizer(SENTENCES[0]).input_ids[0]
    assert options["source"] in made._tokenizer.convert_ids_to_tokens([first])[0]


def test_the_prefix_reaches_the_model(tmp_path, monkeypatch):
    made = Translator(settings(tiny_t5(tmp_path), prefix="two dogs "), device="cpu")
    tokenizer, seen = made._tokenizer, []
    made._tokenizer = type("Listens", (), {
        "__call__": lambda self, texts, **options: seen.extend(texts) or tokenizer(texts, **options),
        "__getattr__": lambda self, name: getattr(tokenizer, name),
    })()  # fmt: skip
    made.translate(["run"])
    assert seen == ["two dogs run"]


def test_a_target_language_is_asked_for_and_checked(tmp_path):
    model = tiny_nllb(tmp_path)
    with pytest.raises(CseError, match="say which with --to"):
        Translator(settings(model, source="eng_Latn"), device="cpu").translate(["two dogs"])
    with pytest.raises(CseError, match=r"--to: .* no language 'deu_Latin'.* Did you mean 'deu_Latn'"):
        Translator(settings(model, source="eng_Latn", target="deu_Latin"), device="cpu").translate(["two dogs"])
    with pytest.raises(CseError, match=r"--from: .* no language 'english'"):
        Translator(settings(model, source="english", target="deu_Latn"), device="cpu").translate(["two dogs"])


def test_what_cannot_translate_is_refused_before_it_is_loaded(tmp_path, monkeypatch):
    with pytest.raises(CseError, match="is a bert, not a sequence-to-sequence model"):
        Translator(settings(tiny_bert(tmp_path)))
    model = tiny_t5(tmp_path)
    with pytest.raises(CseError, match="has to be told what to do"):
        Translator(settings(model))
    (model / "tokenizer.json").unlink()
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CseError, match=r"sentencepiece(.|\n)*cse-registry\[translate\]"):
        Translator(settings(model, prefix=PREFIX))


def test_the_identity_follows_content_and_settings_not_the_path(tmp_path):
    here, there = tmp_path / "a", tmp_path / "b"
    one = Translator(settings(tiny_t5(here), prefix=PREFIX)).identity
    assert Translator(settings(tiny_t5(there), prefix=PREFIX)).identity == one
    assert Translator(settings(tiny_t5(there), prefix="")).identity != one
    assert Translator(settings(tiny_t5(there), prefix=PREFIX, beams=2)).identity != one
