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

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_pairs", "undrawn")]


@pytest.fixture
def file(tmp_path: Path, parts: Small) -> Path:
    return recipe(tmp_path, parts, steps=4)


def test_a_run_its_model_its_scores_and_its_leaderboard(file: Path) -> None:
    results = cse_cli.run(file, seeds=[3, 5], settings={"train.learning_rate": 1e-3}, device="cpu", progress=False)
    assert [result.seed for result in results] == [3, 5]
    frame = cse_cli.to_frame(results)
    assert list(frame["seed"]) == [3, 5]
    assert list(frame["dev.spearman"]) == [result.scores["dev"]["spearman"] for result in results]

    (file.parent / "r.csv").write_text("method,seed,task,score\na,4,dev,50\n", encoding="utf-8")
    loaded = cse_cli.load_results(str(file), elsewhere=[str(file.parent / "r.csv")])
    assert loaded[:2] == results
    assert (loaded[2].recipe, loaded[2].seed, loaded[2].scores) == ("a", 4, {"dev": {"score": 50.0}})
    assert list(cse_cli.to_frame(loaded)["dev.spearman"][:2]) == list(frame["dev.spearman"])
    assert cse_cli.load_results("quickstart") == []

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


@pytest.mark.parametrize("seeds", ["0,1", "3", [0, 0], [], 0, -1, True, [1, "2"], [-1], 2.5])
def test_wrong_seeds_are_named_as_the_argument(file: Path, seeds: object) -> None:
    with refuses("api.invalid_seeds", f"seeds = {seeds!r}", "seeds=[1, 5, 7]") as caught:
        cse_cli.run(file, seeds=seeds, device="cpu", progress=False)  # type: ignore[arg-type]
    assert "--" not in str(caught.value)


def test_errors_have_the_text_of_the_command(file: Path) -> None:
    with refuses("recipe.unknown_key", "--set train.sead: ", "'seed'"):
        cse_cli.load_recipe(file, {"train.sead": 1})
    with refuses("recipe.unknown_path", "--unset quue: "):
        cse_cli.load_recipe(file, remove=["quue"])
    with refuses("api.invalid_workers", "workers = 0"):
        cse_cli.run(file, workers=0, progress=False)


def test_the_text_of_a_result_is_one_short_line(file: Path) -> None:
    (result,) = cse_cli.run(file, seeds=[4], device="cpu", progress=False)
    text = repr(result)
    assert len(text) < 200
    assert f"{result.scores['dev']['spearman']:.2f}".rstrip("0") in text
    assert "seed=4, " in text
    assert str(result.run_id) in str(result)


def test_a_model_encodes_in_the_requested_precision() -> None:
    exact, half = (cse_cli.load_model("mini_en", precision=one).encode("a cat") for one in ("fp32", "bf16"))
    assert half.dtype == np.float32
    assert 1 - 1e-3 < float(exact @ half / np.linalg.norm(exact) / np.linalg.norm(half)) < 1
    with refuses("core.unknown_precision", "'fp8'"):
        cse_cli.load_model("mini_en", precision="fp8").encode("a cat")


def test_encode_refuses_what_is_not_a_string(file: Path) -> None:
    model = cse_cli.load_model("mini_en")
    with refuses("model.not_a_string", "sentences[1] = None", "NoneType"):
        model.encode(["a cat", None])  # type: ignore[list-item]
    with refuses("model.not_a_string", "sentences[0] = 3"):
        model.encode(3)  # type: ignore[arg-type]


def test_recipes_with_one_title_differ_in_the_frame(file: Path) -> None:
    other = file.with_name("other.toml")
    other.write_text(file.read_text().replace("[train]", "[train]\nweight_decay = 0.1", 1))
    cse_cli.run(file, other, device="cpu", progress=False)
    cse_cli.run(file, settings={"train.learning_rate": 1e-3}, device="cpu", progress=False)
    frame = cse_cli.to_frame(next(t for t in cse_cli.leaderboard() if any(r.source == "measured" for r in t.rows)))
    measured = frame[frame["source"] == "measured"]
    assert len(set(measured["name"])) == 1
    assert {file.stem, other.stem} <= set(measured["recipe"])
