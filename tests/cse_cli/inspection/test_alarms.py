"""Alarms before a run: what is alarming, what is not, and that they are found once."""

from __future__ import annotations

import pytest
import torch

from cse_cli.core.devices import choose
from cse_cli.inspection.facts import LEAKED
from cse_cli.recipe.load import load
from cse_cli.runs.record import RunRecord
from cse_cli.training.build import prepare
from registry.resources import catalog
from tests.support.running import Heard

OPEN = [row["text"] for row in catalog.open_text("tatoeba_open")]


def warnings(loaded):
    heard = Heard()
    prepare(loaded.recipe, 0, choose("cpu"), RunRecord("small", None, heard))
    return heard.warnings


@pytest.fixture
def warned(folder, parts):
    """Prepare a small run on some rows, with the pairs of the package as its dev split; return its warnings."""

    def of(rows, *overrides):
        (folder / "t.txt").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
        recipe = f'''
            schema = 1
            title = "Small"
            language = "en"
            [data]
            file = "t.txt"
            [encoders.online]
            name = "transformer"
            model = "{parts.models["bert"]}"
            pooling = "cls"
            [views.anchor]
            [views.positive]
            [losses.info_nce]
            [train]
            steps = 2
            batch_size = 64
            [evaluate]
            metric_for_best_model = "dev.spearman"
            [evaluators.dev]
            name = "sts"
            dataset = "stsb_open"
            split = "dev"
        '''
        (folder / "small.toml").write_text(recipe, encoding="utf-8")
        return warnings(load("small.toml", ("data.max_length=64", *overrides)))

    return of


@pytest.mark.slow
def test_a_usual_text_has_none(warned):
    assert warned(OPEN[:500]) == []


def test_equal_sentences(warned):
    (text,) = warned(["The same sentence."] * 30 + ["The  same sentence. "] * 50)
    assert text.startswith("all 80 rows of the training text are the same sentence")


@pytest.mark.slow
def test_many_equal_sentences(warned):
    # Of 640 rows 64 are equal. A batch of 64 has a second one with the probability 0.998 for each of them.
    (text,) = warned([*OPEN[:576], *["A copy."] * 64])
    assert text.startswith("10% of the rows of a batch of 64 have an equal sentence in the batch")
    assert "63 of 640 rows" in text
    assert warned([*OPEN[:576], *["A copy."] * 64], "train.batch_size=2") == []


@pytest.mark.slow
def test_evaluation_sentences(warned):
    dev = list(dict.fromkeys(" ".join(pair.first.split()) for pair in catalog.read_pairs("stsb_open", "dev")))
    known = len({" ".join(text.split()) for pair in catalog.read_pairs("stsb_open", "dev") for text in pair[2:]})
    few, many = int(known * LEAKED) - 2, int(known * LEAKED) + 2
    assert warned([*OPEN[:300], *dev[:few]]) == []
    (text,) = warned([*OPEN[:300], *dev[:many]])
    assert "sentences of evaluation sets (stsb_open/dev 1%)" in text


@pytest.mark.slow
@pytest.mark.parametrize(("long", "expected"), [(50, []), (51, ["51% of the rows are cut"])])
def test_cut_rows(warned, long, expected):
    rows = [f"a {'dog ' * 80}{number}" for number in range(long)] + [f"dog {number}" for number in range(100 - long)]
    texts = warned(rows)
    assert [text[: len(start)] for text, start in zip(texts, expected, strict=True)] == expected


@pytest.mark.slow
def test_random_numbers_of_the_training_are_unchanged(warned, monkeypatch):
    with monkeypatch.context() as without:
        without.setattr("cse_cli.training.build.alarms_before_run", lambda *_: [])
        assert warned(["The same sentence."] * 80) == []
        before = torch.get_rng_state()
    assert len(warned(["The same sentence."] * 80)) == 1
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
def test_the_shipped_text_of_the_quickstart_has_none(capsys):
    assert warnings(load("quickstart")) == []
