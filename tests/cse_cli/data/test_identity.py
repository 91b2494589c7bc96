"""The five parts of an identity, what changes them and what does not."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from cse_cli.data.identity import columns_read, identify, identify_known
from cse_cli.data.requirements import Availability
from cse_cli.data.sources import open_text, text_fingerprint
from cse_cli.recipe.load import load
from cse_cli.recipe.schema import Data
from cse_cli.training.build import resolve
from registry import LOSSES
from registry.errors import CseError
from registry.resources import hub, models
from registry.resources.models import settings_sha256, sha256_of
from tests.support.errors import refuses
from tests.support.tiny import sentences, tiny_bert, word_vectors

RECIPE = """\
title = "t"
[data]
file = "{text}"
[encoders.online]
name = "transformer"
model = "{model}"
[views.anchor]
[views.positive]
[losses.info_nce]
[train]
steps = 2
batch_size = 4
"""
TEACHER = """\
[encoders.teacher]
name = "transformer"
model = "{teacher}"
[views.taught]
encoder = "teacher"
[losses.taught]
name = "info_nce"
views = {{ anchor = "anchor", positive = "taught" }}
"""


@pytest.fixture
def parts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny_bert(tmp_path / "a", name="bert")
    tiny_bert(tmp_path / "a", name="teacher", seed=1)
    (tmp_path / "a" / "t.txt").write_text("".join(f"{line}\n" for line in sentences()))
    return tmp_path


def written(folder, changes=(), extra=""):
    """Return the recipe of a folder that has models and text of its own."""
    places = {"text": folder / "t.txt", "model": folder / "bert", "teacher": folder / "teacher"}
    path = folder / "r.toml"
    path.write_text((RECIPE + extra).format(**places), encoding="utf-8")
    return load(str(path), list(changes)).recipe


def copied(parts, name="b"):
    shutil.copytree(parts / "a", parts / name)
    return parts / name


def changed_weights(folder):
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def differences(one, other):
    return [(each.part, each.name) for each in identify(one).differences(identify(other))]


@pytest.mark.slow
def test_all_parts_in_another_folder_are_the_same_experiment(parts):
    one, other = written(parts / "a", extra=TEACHER), written(copied(parts), extra=TEACHER)
    found = identify(one)
    assert identify(other) == found
    assert found.weights.keys() == {
        "encoders.online", "encoders.online.config", "encoders.teacher", "encoders.teacher.config",
    }  # fmt: skip
    assert found.code.keys() == {
        "encoders.transformer", "losses.info_nce", "optimizers.adamw", "schedules.linear",
    }  # fmt: skip


def test_changed_weights_of_a_teacher_are_named(parts):
    one = written(parts / "a", extra=TEACHER)
    other = copied(parts)
    changed_weights(other / "teacher")
    assert differences(one, written(other, extra=TEACHER)) == [("weights", "encoders.teacher")]


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json"])
def test_a_changed_model_folder_is_another_experiment(parts, file):
    one = written(parts / "a")
    before = identify(one)
    path = parts / "a" / "bert" / file
    path.write_text(path.read_text().replace("0.1", "0.2").replace('"green"', '"gruen"'))
    assert [each.name for each in before.differences(identify(one))] == ["encoders.online.config"]
    other = copied(parts)
    changed_weights(other / "bert")
    assert differences(one, written(other)) == [("weights", "encoders.online")]


def test_what_a_library_notes_of_itself_does_not_count(parts):
    folder = parts / "a" / "bert"
    before = settings_sha256(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"transformers_version": "9", "_name_or_path": "x"}))
    assert settings_sha256(folder) == before


def test_random_weights_have_a_configuration_only(parts):
    recipe = written(parts / "a", ["encoders.online.random_weights=true"])
    changed_weights(parts / "a" / "bert")
    assert identify(recipe).weights.keys() == {"encoders.online.config"}


def test_another_text_of_the_same_name_is_another_experiment(parts):
    one, other = written(parts / "a"), written(copied(parts))
    (parts / "b" / "t.txt").write_text("".join(f"{line}\n" for line in sentences(seed=1)))
    assert differences(one, other) == [("text", "")]
    assert one.hash() == other.hash()
    assert differences(one, written(parts / "a", ["data.limit=5"])) == [("settings", ""), ("text", "")]


@pytest.mark.slow
def test_the_text_is_that_of_the_run(parts):
    recipe = load("quickstart").recipe
    assert columns_read(recipe) == resolve(recipe, 0).columns == {"text", "translation"}
    assert identify(recipe).text == open_text(recipe.data, columns_read(recipe)).fingerprint
    data = Data(dataset=("wiki1m_joined",), limit=7)
    assert text_fingerprint(data, {"text"}) == open_text(data, {"text"}).fingerprint


def test_text_that_was_read_is_not_read_again(parts, monkeypatch):
    recipe = written(parts / "a")
    first = identify(recipe).text
    monkeypatch.setattr("cse_cli.data.files.refuse_table", lambda _: None)
    for name in ("_read", "lines", "File.read"):
        monkeypatch.setattr(f"cse_cli.data.files.{name}", lambda *_: pytest.fail("read again"))
    monkeypatch.setattr("cse_cli.data.sources.read_arrow", lambda *_: pytest.fail("the rows were read"))
    assert identify(recipe).text == first


@pytest.mark.parametrize("kind", ["missing", "damaged"])
def test_a_useless_note_of_the_text_is_created_again(parts, home, kind):
    recipe = written(parts / "a")
    first = identify(recipe).text
    (note,) = (home / "cache" / "text").glob("*.json")
    whole = note.read_text()
    note.unlink() if kind == "missing" else note.write_text(whole[:-9])
    with pytest.warns(UserWarning, match="created again"):
        assert identify(recipe).text == first
    assert note.read_text() == whole


def test_a_recipe_without_training_has_no_text(parts):
    recipe = written(parts / "a", ["train.steps=0"])
    (parts / "a" / "t.txt").unlink()
    assert identify(recipe).text == ""


def test_a_file_that_a_part_reads_counts(parts):
    vectors = word_vectors(parts / "vectors.txt")
    extra = TEACHER.replace("transformer", "word_vectors").replace("model =", "file =")

    def recipe(file):
        return written(parts / "a", extra=extra.replace("{teacher}", str(file)))

    before = identify(recipe(vectors))
    moved = vectors.rename(parts / "a" / "vectors.txt")
    assert identify(recipe(moved)) == before
    word_vectors(moved, seed=1)
    assert [each.name for each in before.differences(identify(recipe(moved)))] == ["encoders.teacher.file"]


@pytest.mark.slow
def test_a_data_set_that_a_part_reads_counts(parts, monkeypatch):
    augment = '[[views.positive.augment]]\nname = "nearest_sentence"\ndataset = "tatoeba_open"\n'
    recipe = written(parts / "a", extra=augment)
    place = "views.positive.augment.0.dataset"
    found = identify(recipe).weights[place]
    assert re.fullmatch("rows:[0-9a-f]{64}", found)
    assert columns_read(recipe) == {"text"}
    monkeypatch.setattr("cse_cli.data.identity.availability", lambda one: Availability(one, "missing"))
    assert identify_known(recipe).weights[place] is None


def test_hub_ids_stay_and_folders_go(parts):
    def hashed(model):
        return written(parts / "a", [f"encoders.online.model={model}"]).hash()

    assert hashed("/x/bert") == hashed("~/y/z/bert/") == hashed("./bert") == hashed("bert")
    assert len({hashed("bert"), hashed("me/bert"), hashed("you/bert")}) == 3


def test_files_of_evaluators_stay_in_the_settings(parts):
    extra = '[evaluators.own]\nname = "sts"\nfile = "{}"\n'
    hashes = {written(parts / "a", extra=extra.format(f"/{name}/dev.tsv")).hash() for name in "xy"}
    assert len(hashes) == 2


PAIRS = "score\tsentence1\tsentence2\n1\ta\tb\n2\tc\td\n5\te\tf\n"
OWN = '[evaluators.own]\nname = "sts"\nfile = "dev.tsv"\n'


def test_repaired_pairs_are_another_experiment(parts):
    """A run that finished on the old pairs is not the result of the same command."""
    recipe, file = written(parts / "a", extra=OWN), Path("dev.tsv")
    file.write_text(PAIRS)
    before = identify(recipe)
    file.write_text(PAIRS.replace("5\te", "0\te"))
    (found,) = before.differences(identify(recipe))
    assert (found.part, found.name) == ("scored", "dev.tsv/test")
    assert re.fullmatch(r"scored data dev\.tsv/test \w{8} / \w{8}", str(found))
    assert identify(recipe).experiment != before.experiment
    file.write_text(PAIRS)
    assert identify(recipe) == before
    file.unlink()
    known = identify_known(recipe)
    assert known.unknown == ["evaluators.own"]
    assert not known.differences(before)


@pytest.mark.slow
def test_cells_with_line_breaks_are_not_the_lines_of_others(parts):
    """Both files have the same characters between the same line breaks, in other cells."""
    texts = []
    for cells in (["a\nb", "c"], ["a", "b\nc"]):
        path = parts / "t.jsonl"
        path.write_text("".join(json.dumps({"text": cell}) + "\n" for cell in cells))
        texts.append(open_text(Data(file=str(path)), {"text"}).fingerprint)
    assert len(set(texts)) == 2


def test_a_text_that_was_replaced_by_one_of_the_same_size_time_and_inode_is_read(parts):
    file, data = parts / "t.txt", Data(file=str(parts / "t.txt"))
    file.write_text("a dog\n")
    state = file.stat()
    assert list(open_text(data, {"text"}).cells("text")) == ["a dog"]
    file.write_text("a cat\n")
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert list(open_text(data, {"text"}).cells("text")) == ["a cat"]


def test_an_edited_loss_of_a_plug_in_is_named(parts, monkeypatch):
    monkeypatch.setattr(LOSSES, "_entries", {entry.name: entry for entry in LOSSES})
    monkeypatch.syspath_prepend(str(parts))
    example = Path(__file__).parents[2] / "plugin_example" / "cse_uniformity" / "uniformity.py"
    plugin = parts / "own_uniformity.py"
    source = example.read_text()
    plugin.write_text(source)
    importlib.import_module("own_uniformity")
    try:
        recipe = written(parts / "a", extra="[losses.uniformity]\n")
        before = identify(recipe)
        plugin.write_text(source.replace("pow(2)", "pow(4)"))
        after = identify(recipe)
        assert [str(each) for each in before.differences(after)] == ["code of losses.uniformity"]
        assert after.experiment != before.experiment
    finally:
        del sys.modules["own_uniformity"]


def test_what_is_not_here_is_unknown_and_matches_anything(parts):
    recipe = written(parts / "a", extra=TEACHER)
    whole = identify(recipe)
    assert not identify_known(recipe).differences(whole)
    shutil.rmtree(parts / "a" / "teacher")
    (parts / "a" / "t.txt").unlink()
    known = identify_known(recipe)
    assert known.unknown == ["text", "encoders.teacher", "encoders.teacher.config"]
    assert not known.differences(whole)
    assert known.differences(whole.model_copy(update={"weights": {**whole.weights, "encoders.online": "x"}}))
    assert known.differences(whole.model_copy(update={"weights": {}}))
    assert known.differences(whole.model_copy(update={"code": {}}))
    assert known.differences(whole.model_copy(update={"settings": "x"}))
    with refuses("data.missing_requirement", "text, encoders.teacher"):
        identify(recipe)
    assert identify_known(recipe, text="x").differences(whole)


def test_nothing_is_fetched(parts, monkeypatch):
    monkeypatch.setattr(hub, "fetch", lambda *_, **__: pytest.fail("fetched"))
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("asked the network"))
    recipe = written(parts / "a", ["encoders.online.model=someone/bert"])
    assert identify_known(recipe).weights == {"encoders.online": None, "encoders.online.config": None}


@pytest.fixture
def reads(monkeypatch):
    """Forget what this process knows; return the files that are read."""
    seen: list[str] = []
    real = hashlib.file_digest
    models._content_sha256.cache_clear()
    monkeypatch.setattr(
        hashlib, "file_digest", lambda file, name: seen.append(Path(file.name).name) or real(file, name)
    )
    return seen


def test_a_file_is_read_once_by_a_process(tmp_path, reads):
    file = tmp_path / "f"
    file.write_bytes(b"one")
    assert sha256_of(file) == sha256_of(file) == hashlib.sha256(b"one").hexdigest()
    assert reads == ["f"]


def test_a_new_file_of_the_same_size_and_time_is_read(tmp_path, reads):
    file, other = tmp_path / "f", tmp_path / "other"
    file.write_bytes(b"one")
    first = sha256_of(file)
    other.write_bytes(b"two")
    stat = file.stat()
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.replace(file)
    assert sha256_of(file) != first
    file.write_bytes(b"one")
    assert sha256_of(file) == first
    assert reads == ["f", "f", "f"]


def test_an_unreadable_text_is_a_message(parts):
    recipe = written(parts / "a")
    (parts / "a" / "t.txt").write_bytes(b"a\xff\n")
    with pytest.raises(CseError, match=r"t\.txt:1"):
        identify_known(recipe)
