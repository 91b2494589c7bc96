"""The commands as functions: results typed, as frames, and a model that encodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import cse_cli
from cse_cli import api
from registry.errors import CseError
from tests.support.errors import refuses
from tests.support.shrunken import Small, recipe

pytestmark = pytest.mark.usefixtures("few_pairs", "undrawn")


@pytest.fixture
def file(tmp_path: Path, parts: Small) -> Path:
    return recipe(tmp_path, parts, steps=4)


def test_a_run_its_model_its_scores_and_its_leaderboard(file: Path) -> None:
    results = cse_cli.run(file, seeds=[3, 5], settings={"train.learning_rate": 1e-3}, device="cpu", progress=False)
    assert [result.seed for result in results] == [3, 5]
    frame = cse_cli.to_frame(results)
    assert list(frame["seed"]) == [3, 5]
    assert list(frame["dev.spearman"]) == [result.scores["dev"]["spearman"] for result in results]

    model = cse_cli.load_model(str(results[0].run_id))
    vectors = model.encode(["a cat", "the dog sees a cat"])
    assert vectors.dtype == np.float32
    assert vectors.shape == (2, model.encoder.dim)
    assert np.array_equal(model.encode("a cat"), vectors[0])
    transformer, tokenizer = model.to_transformers()
    hidden = transformer(**tokenizer(["a cat"], return_tensors="pt")).last_hidden_state
    assert hidden.shape[-1] == model.encoder.width

    (scored,) = cse_cli.evaluate(str(results[0].run_id), tasks="stsb", device="cpu", progress=False)
    assert scored.scores["stsb"]["spearman"] == cse_cli.to_frame([scored])["stsb.spearman"][0]
    (table,) = [table for table in cse_cli.leaderboard() if any(row.source == "measured" for row in table.rows)]
    lines = cse_cli.to_frame(table)
    assert list(lines[lines["source"] == "measured"]["seeds"]) == [2]


def test_finished_runs_are_returned_unless_they_run_again(file: Path) -> None:
    first, second, third = (
        cse_cli.run(file, device="cpu", progress=False, again=again)[0] for again in (False, False, True)
    )
    assert second == first
    assert third.run_id != first.run_id
    assert third.last_state == first.last_state


def test_a_recipe_with_settings_and_without_keys(file: Path) -> None:
    settings = {"train.steps": 7, "title": 'a "title"', "losses.second": {"name": "info_nce", "weight": 0.5}}
    loaded = cse_cli.load_recipe(file, settings, remove=["evaluate.metric_for_best_model"]).recipe
    assert (loaded.train.steps, loaded.title) == (7, 'a "title"')
    assert loaded.evaluate.metric_for_best_model is None
    assert loaded.losses["second"].weight == 0.5
    with refuses("recipe.unknown_recipe", "Did you mean 'quickstart'"):
        cse_cli.load_recipe("quickstrat")


def test_a_run_that_fails_raises_its_error_after_the_others(file: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    missing.write_text(file.read_text() + f'\n[evaluators.other]\nname = "sts"\nfile = "{tmp_path}/none.tsv"\n')
    with pytest.raises(CseError, match=r"none\.tsv"):
        cse_cli.run(missing, file, device="cpu", progress=False)
    assert len(cse_cli.leaderboard()) > 0


def test_sentence_transformers_has_equal_embeddings(file: Path) -> None:
    pytest.importorskip("sentence_transformers")
    (result,) = cse_cli.run(file, device="cpu", progress=False)
    model = cse_cli.load_model(str(result.run_id))
    theirs = model.to_sentence_transformers()
    vectors = theirs.encode(["a cat", "the dog"], convert_to_tensor=True).cpu()
    assert torch.equal(vectors, torch.from_numpy(model.encode(["a cat", "the dog"])))
    assert not any("pooler" in name for name, _ in theirs.named_parameters())  # transformers would warn of it


def test_names_are_imported_lazily() -> None:
    assert set(cse_cli.__all__) - {"__version__"} == set(api.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'trains'"):
        cse_cli.trains  # noqa: B018
