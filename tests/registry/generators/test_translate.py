import importlib.util
import json
from functools import partial

import pytest
import torch

from registry.generators import translate as module
from registry.generators.translate import Translate
from tests.support.errors import refuses
from tests.support.seq2seq import SENTENCES, tiny_m2m100, tiny_marian, tiny_nllb, tiny_t5
from tests.support.tiny import tiny_bert
from tests.support.versions import needs

needs_sentencepiece = pytest.mark.skipif(
    importlib.util.find_spec("sentencepiece") is None, reason="the extra `translate` is not installed"
)
PREFIX = "translate English to German: "
MANY = [f"{a} and {b} {i}" for a in SENTENCES for b in SENTENCES for i in range(4)]


def translate(model, batch_tokens=None, **more):
    made = Translate(str(model), **{"max_length": 12, **more})
    made.use(torch.device("cpu"), torch.float32, batch_tokens)
    return made


def translated(generator, *lists):
    return {sentence: line for one in lists for sentence, line in zip(one, generator.make(one), strict=True)}


def nllb(folder):
    needs("languages of NLLB's tokenizer")
    return tiny_nllb(folder)


FAMILIES = [
    pytest.param(tiny_t5, {"prefix": PREFIX}, id="t5"),
    pytest.param(nllb, {"source": "en", "to": "de"}, id="nllb"),
    pytest.param(tiny_marian, {}, id="marian", marks=needs_sentencepiece),
    pytest.param(tiny_m2m100, {"source": "en", "to": "de"}, id="m2m100", marks=needs_sentencepiece),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("family", "options"), FAMILIES)
@pytest.mark.parametrize("beams", [1, 3])
def test_every_family_translates_the_same_in_any_batch(tmp_path, family, options, beams):
    model = partial(translate, family(tmp_path), beams=beams, **options)
    whole = translated(model(), SENTENCES)
    assert whole.keys() == set(SENTENCES)
    assert any(whole.values())
    assert translated(model(batch_tokens=1), *([s] for s in reversed(SENTENCES))) == whole
    assert not any("\t" in line or "\n" in line for line in whole.values())


@pytest.mark.slow
@pytest.mark.parametrize(("beams", "shapes"), [(1, [(2, 7), (3, 5)]), (2, [(1, 7), (1, 7), (1, 5), (2, 4)])])
def test_a_batch_has_as_many_sentences_as_fit_longest_first(tmp_path, monkeypatch, beams, shapes):
    made = translate(tiny_t5(tmp_path), prefix="", beams=beams, batch_tokens=16)
    seen = []
    generate = made._model.generate
    monkeypatch.setattr(made._model, "generate", lambda **i: seen.append(tuple(i["input_ids"].shape)) or generate(**i))
    translated(
        made,
        ["two dogs run", "a man sees the red house", "a child eats", "the cat sleeps a", "two dogs run in the tree"],
    )
    assert seen == shapes


@pytest.mark.slow
def test_a_gpu_without_memory_gets_smaller_batches(tmp_path, monkeypatch):
    model = tiny_t5(tmp_path)
    whole = translated(translate(model, prefix=""), MANY)
    made, sizes, freed = translate(model, prefix="", batch_tokens=500), [], []
    monkeypatch.setattr(torch.cpu, "empty_cache", lambda: freed.append(None), raising=False)  # the device here
    generate = made._model.generate

    def small(**inputs):
        sizes.append(inputs["input_ids"].numel())
        if sizes[-1] > 100:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return generate(**inputs)

    monkeypatch.setattr(made._model, "generate", small)
    assert translated(made, MANY) == whole
    assert sizes[0] > 200
    assert len(freed) == sum(size > 100 for size in sizes)
    assert [size > 100 for size in sizes] == sorted((size > 100 for size in sizes), reverse=True)  # never grows again
    monkeypatch.setattr(made._model, "generate", lambda **_: (_ for _ in ()).throw(torch.OutOfMemoryError()))
    with refuses("data.out_of_memory", "max_length"):
        translated(made, SENTENCES)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "options"), FAMILIES[1:2] + FAMILIES[3:])
def test_a_target_language_is_the_first_token_made(tmp_path, monkeypatch, family, options):
    made = translate(family(tmp_path), **options)
    begun = []
    generate = made._model.generate

    def listen(**inputs):
        out = generate(**inputs)
        begun.extend(made._tokenizer.convert_ids_to_tokens(out[:, 1].tolist()))
        return out

    monkeypatch.setattr(made._model, "generate", listen)
    translated(made, SENTENCES[:2])
    assert len(begun) == 2
    assert all(token in ("deu_Latn", "__de__") for token in begun)
    first = made._tokenizer(SENTENCES[0]).input_ids[0]
    assert made._tokenizer.convert_ids_to_tokens([first])[0] in ("eng_Latn", "__en__")


@pytest.mark.slow
def test_the_prefix_reaches_the_model(tmp_path):
    model = tiny_t5(tmp_path)
    told = translated(translate(model, prefix="two dogs "), ["run"])
    assert told["run"] == translated(translate(model, prefix=""), ["two dogs run"])["two dogs run"]


def test_weights_outside_the_folder_are_refused(tmp_path):
    model = tiny_t5(tmp_path)
    (model / "model.safetensors").rename(tmp_path / "outside.safetensors")
    index = {"metadata": {}, "weight_map": {"shared.weight": "../outside.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(Exception, match=r"lists '\.\./outside\.safetensors'"):
        translated(translate(model, prefix=""), SENTENCES)


@pytest.mark.slow
def test_a_missing_target_and_other_models_are_errors_before_the_model_loads(tmp_path, monkeypatch):
    with refuses("data.no_target_language", "`to`"):
        translate(tiny_t5(tmp_path))
    with refuses("data.not_a_translation_model", "bert"):
        translate(tiny_bert(tmp_path))
    model = tiny_t5(tmp_path)
    (model / "tokenizer.json").unlink()
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with refuses("data.no_sentencepiece", 'pip install "', '"sentencepiece'):
        translate(model, prefix=PREFIX)


@pytest.mark.slow
def test_a_tokenizer_with_languages_needs_a_target(tmp_path):
    with refuses("data.no_target_language", "`to`"):
        translate(nllb(tmp_path))


@pytest.mark.slow
def test_a_tokenizer_that_lost_its_languages_is_refused(tmp_path):
    """As transformers before 5.6 opens NLLB's."""
    model = tiny_nllb(tmp_path)
    settings = model / "tokenizer_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "tokenizer_class": "TokenizersBackend"}))
    for options in ({}, {"source": "en", "to": "de"}, {"prefix": PREFIX}):
        with refuses("data.tokenizer_without_languages", "transformers 5.6"):
            translate(model, **options)


@pytest.mark.slow
def test_the_identity_follows_content_instruction_and_sacremoses(tmp_path, monkeypatch):
    here, there = tiny_t5(tmp_path / "a"), tiny_t5(tmp_path / "b")
    one = translate(here, prefix=PREFIX).identity()
    assert translate(there, prefix=PREFIX).identity() == one
    assert translate(there, source="en", to="de").identity() == one
    assert translate(there, prefix=PREFIX, batch_tokens=64).identity() == one
    others = {translate(there, **{"prefix": PREFIX, **more}).identity()
              for more in ({"prefix": ""}, {"beams": 2}, {"max_length": 13})}  # fmt: skip
    assert len(others | {one}) == 4
    made = [translate(tiny_t5(tmp_path), prefix="") for _ in range(2)]
    identities = []
    for translator, spec in zip(made, (None, object()), strict=True):
        monkeypatch.setattr(module.importlib.util, "find_spec", lambda name, spec=spec: spec)
        identities.append(translator.identity())
    assert identities[0] != identities[1]
