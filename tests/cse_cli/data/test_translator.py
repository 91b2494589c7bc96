import importlib.util
import json
import multiprocessing
import os
import signal

import pytest
import torch

from cse_cli.data import translator as module
from cse_cli.data.languages import Pair
from cse_cli.data.translator import Settings, Translator, Workers
from registry.errors import CseError, RunFailedError
from tests.cse_cli.data.seq2seq import SENTENCES, tiny_m2m100, tiny_marian, tiny_nllb, tiny_t5
from tests.tiny import tiny_bert

needs_sentencepiece = pytest.mark.skipif(
    importlib.util.find_spec("sentencepiece") is None, reason="the extra `translate` is not installed"
)
PREFIX = "translate English to German: "
MANY = [f"{a} and {b} {i}" for a in SENTENCES for b in SENTENCES for i in range(4)]


def settings(model, **more):
    return Settings(str(model), **{"max_length": 12, **more})


def translated(translator, *windows):
    return dict(pair for batch in translator.translate(windows) for pair in batch)


FAMILIES = [
    pytest.param(tiny_t5, {"prefix": PREFIX}, id="t5"),
    pytest.param(tiny_nllb, {"languages": Pair("en", "de")}, id="nllb"),
    pytest.param(tiny_marian, {}, id="marian", marks=needs_sentencepiece),
    pytest.param(tiny_m2m100, {"languages": Pair("en", "de")}, id="m2m100", marks=needs_sentencepiece),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("family", "options"), FAMILIES)
@pytest.mark.parametrize("beams", [1, 3])
def test_every_family_translates_the_same_whatever_the_batch(tmp_path, family, options, beams):
    model = settings(family(tmp_path), beams=beams, **options)
    whole = translated(Translator(model, "cpu"), SENTENCES)
    assert whole.keys() == set(SENTENCES)
    assert any(whole.values())
    assert translated(Translator(model, "cpu", batch_tokens=1), *([s] for s in reversed(SENTENCES))) == whole
    assert not any("\t" in line or "\n" in line for line in whole.values())


@pytest.mark.parametrize(("beams", "shapes"), [(1, [(2, 7), (3, 5)]), (2, [(1, 7), (1, 7), (1, 5), (2, 4)])])
def test_a_batch_has_as_many_sentences_as_fit_longest_first(tmp_path, monkeypatch, beams, shapes):
    made = Translator(settings(tiny_t5(tmp_path), prefix="", beams=beams), "cpu", batch_tokens=16)
    seen = []
    generate = made._model.generate
    monkeypatch.setattr(made._model, "generate", lambda **i: seen.append(tuple(i["input_ids"].shape)) or generate(**i))
    translated(
        made,
        ["two dogs run", "a man sees the red house", "a child eats", "the cat sleeps a", "two dogs run in the tree"],
    )
    assert seen == shapes


def test_a_gpu_without_memory_gets_smaller_batches(tmp_path, monkeypatch):
    model = settings(tiny_t5(tmp_path), prefix="")
    whole = translated(Translator(model, "cpu"), MANY)
    made, sizes = Translator(model, "cpu", batch_tokens=500), []
    generate = made._model.generate

    def small(**inputs):
        sizes.append(inputs["input_ids"].numel())
        if sizes[-1] > 100:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return generate(**inputs)

    monkeypatch.setattr(made._model, "generate", small)
    assert translated(made, MANY) == whole
    assert sizes[0] > 200
    assert [size > 100 for size in sizes] == sorted((size > 100 for size in sizes), reverse=True)  # never grows again
    monkeypatch.setattr(made._model, "generate", lambda **_: (_ for _ in ()).throw(torch.OutOfMemoryError()))
    with pytest.raises(RunFailedError, match=r"not enough memory to translate one sentence of \d+ tokens"):
        translated(made, SENTENCES)


@pytest.mark.parametrize(("family", "options"), FAMILIES[1:2] + FAMILIES[3:])
def test_a_target_language_is_the_first_token_made(tmp_path, monkeypatch, family, options):
    made = Translator(settings(family(tmp_path), **options), "cpu")
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


def test_the_prefix_reaches_the_model(tmp_path):
    model = tiny_t5(tmp_path)
    told = translated(Translator(settings(model, prefix="two dogs "), "cpu"), ["run"])
    assert told["run"] == translated(Translator(settings(model, prefix=""), "cpu"), ["two dogs run"])["two dogs run"]


@needs_sentencepiece
def test_a_marian_model_without_normalised_punctuation_is_warned_of(tmp_path, monkeypatch, recwarn):
    model = settings(tiny_marian(tmp_path))
    recwarn.clear()
    found = importlib.util.find_spec
    identities = []
    for there in (True, False):
        monkeypatch.setattr(
            module.importlib.util,
            "find_spec",
            lambda name, there=there: there or None if name == "sacremoses" else found(name),
        )
        made = Translator(model, "cpu")
        assert ("sacremoses" in made.warning) is not there
        identities.append(made.identity)
    assert identities[0] != identities[1]
    assert not [warning for warning in recwarn if "sacremoses" in str(warning.message)]


def test_weights_outside_the_folder_are_refused(tmp_path):
    model = tiny_t5(tmp_path)
    (model / "model.safetensors").rename(tmp_path / "outside.safetensors")
    index = {"metadata": {}, "weight_map": {"shared.weight": "../outside.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CseError, match=r"names '\.\./outside\.safetensors', which is no file of this folder"):
        translated(Translator(settings(model, prefix=""), "cpu"), SENTENCES)


def test_a_missing_target_is_told_before_the_model_is_loaded(tmp_path):
    with pytest.raises(CseError, match="say which with --to"):
        Translator(settings(tiny_nllb(tmp_path)))
    with pytest.raises(CseError, match="has to be told what to translate into"):
        Translator(settings(tiny_t5(tmp_path)))


def test_what_cannot_translate_is_refused_before_it_is_loaded(tmp_path, monkeypatch):
    with pytest.raises(CseError, match="is a bert, not a sequence-to-sequence model"):
        Translator(settings(tiny_bert(tmp_path)))
    model = tiny_t5(tmp_path)
    (model / "tokenizer.json").unlink()
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CseError, match=r"sentencepiece(.|\n)*cse-registry\[translate\]"):
        Translator(settings(model, prefix=PREFIX))


def test_the_identity_follows_content_and_how_it_is_asked_not_the_path(tmp_path):
    here, there = tiny_t5(tmp_path / "a"), tiny_t5(tmp_path / "b")
    one = Translator(settings(here, prefix=PREFIX)).identity
    assert Translator(settings(there, prefix=PREFIX)).identity == one
    assert Translator(settings(there, languages=Pair("en", "de"))).identity == one
    assert Translator(settings(there, prefix=PREFIX), batch_tokens=64).identity == one
    others = {Translator(settings(there, **{"prefix": PREFIX, **more})).identity
              for more in ({"prefix": ""}, {"beams": 2}, {"max_length": 13})}  # fmt: skip
    assert len(others | {one}) == 4


@pytest.fixture
def workers(tmp_path):
    """Two workers on a model that takes a while for each sentence, and what it makes of `MANY`."""
    translator = Translator(settings(tiny_t5(tmp_path), prefix="", max_length=32), "cpu", batch_tokens=24)
    return Workers(translator, ["cpu", "cpu"]), translated(translator, MANY)


def windows():
    return (MANY[start : start + 25] for start in range(0, len(MANY), 25))


@pytest.mark.process
def test_workers_translate_as_one_process_does(workers):
    made, expected = workers
    batches = [pair for batch in made.translate(windows()) for pair in batch]
    assert len(batches) == len(MANY)
    assert dict(batches) == expected
    assert multiprocessing.active_children() == []
    assert list(made.translate([])) == []


@pytest.mark.process
def test_what_a_dead_worker_had_not_sent_is_given_to_another(workers):
    made, expected = workers
    batches = []
    for number, batch in enumerate(made.translate(windows())):
        batches += batch
        if number == 10:
            os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
    assert len(batches) == len(MANY)
    assert dict(batches) == expected


@pytest.mark.process
def test_two_workers_that_die_over_the_same_sentences_end_it(workers):
    made, _ = workers
    kept = 0

    def kill_after_each_batch():
        nonlocal kept
        for batch in made.translate(windows()):
            kept += len(batch)
            for process in multiprocessing.active_children():
                os.kill(process.pid, signal.SIGKILL)

    with pytest.raises(RunFailedError, match=r"same sentences; the second was killed by signal 9(.|\n)*--batch-tokens"):
        kill_after_each_batch()
    assert 0 < kept < 50
    assert multiprocessing.active_children() == []


@pytest.mark.process
def test_an_error_of_a_worker_is_raised_here(tmp_path):
    folder = tiny_t5(tmp_path)
    made = Workers(Translator(settings(folder, prefix=""), "cpu"), ["cpu"])
    (folder / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(CseError, match="cannot be loaded"):
        list(made.translate([SENTENCES]))
