"""Whose settings count when a model is scored, and what is told before it is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cse_cli.evaluation.encoder import SentenceEncoder
from cse_cli.evaluation.evaluate import Settings, score_models
from cse_cli.evaluation.model import load_model
from cse_cli.evaluation.tasks import parse_tasks
from cse_cli.runs.record import About, model_of_run
from registry.errors import MissingError
from registry.resources import catalog
from tests.support import mteb_task
from tests.support.errors import refuses
from tests.support.shrunken import pairs
from tests.support.tiny import tiny_bert

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "read_pairs", pairs)
    monkeypatch.setattr(catalog, "fingerprint", lambda name, split: "digest")


@pytest.mark.parametrize(("asked", "used"), [(None, 64), (16, 16), (500, 64)])
def test_the_length_is_the_model_s_own_at_most(asked, used, tmp_path):
    (one,) = score_models([str(tiny_bert(tmp_path))], parse_tasks("stsb"), Settings("mean", asked, 8, "cpu"))
    assert one.max_length == used
    assert one.pooling == "mean"
    assert one.fingerprints == {"stsb/test": "digest"}
    assert set(one.scores) == {"stsb"}
    assert one.tasks["stsb"]["name"] == "sts"
    assert (one.tasks["stsb"]["params"]["dataset"], one.tasks["stsb"]["params"]["level"]) == ("stsb", 0.95)


def test_every_evaluator_of_a_model_asks_one_encoder(tmp_path, monkeypatch):
    made = []

    class Counted(SentenceEncoder):
        def __init__(self, *given):
            super().__init__(*given)
            made.append(self)

    heard = []
    monkeypatch.setattr("cse_cli.evaluation.evaluate.SentenceEncoder", Counted)
    models = [str(tiny_bert(tmp_path / name)) for name in ("one", "two")]
    tasks = parse_tasks("stsb,geometry")
    score_models(models, tasks, Settings(None, None, 8, "cpu"), lambda name, share: heard.append((name, share)))
    assert len(made) == 2
    assert heard[0] == (f"{models[0]}: stsb", 0.0)
    assert list(dict.fromkeys(name for name, _ in heard)) == [f"{model}: {name}" for model in models for name in tasks]
    shares = [share for _, share in heard]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert any(0 < share < 1 / 8 for share in shares)  # inside the first of eight


def test_missing_data_is_told_before_a_model_is_opened(tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.delenv("CSE_DATA", raising=False)
    monkeypatch.setattr("cse_cli.evaluation.evaluate.open_encoder", lambda *_: pytest.fail("opened"))
    with pytest.raises(MissingError, match=r"dataset 'mr', split 'all' .* is not on this machine"):
        score_models([str(tiny_bert(tmp_path))], parse_tasks("transfer"), Settings(None, None, 8, "cpu"))


def test_a_missing_model_is_an_error_before_any_score(tmp_path, monkeypatch):
    monkeypatch.setattr("cse_cli.evaluation.evaluate.open_encoder", lambda *_: pytest.fail("opened"))
    with pytest.raises(MissingError, match="does not exist"):
        score_models([str(tiny_bert(tmp_path)), "./nowhere"], parse_tasks("stsb"), Settings(None, None, 8, "cpu"))


def saved_run(run_id: str, model: bool = True) -> Path:
    about = About(run_id=run_id, name="r seed 1", group="r")
    about.write({"train": {"seed": 1}})
    if model:
        (about.path / "model").mkdir()
    return about.path / "model"


def test_a_run_id_means_its_model():
    first = saved_run("abc123")
    saved_run("abd456")
    saved_run("fff", model=False)
    assert model_of_run("abc") == str(first)
    assert model_of_run("ab") is None
    assert model_of_run("fff") is None
    assert model_of_run("mini_en") is None
    assert model_of_run("*") is None
    assert model_of_run("") is None


def with_prompts(tmp_path, **settings):
    model = tiny_bert(tmp_path)
    (model / "config_sentence_transformers.json").write_text(json.dumps(settings))
    return str(model)


def test_prompts_of_a_model_and_of_a_user(tmp_path):
    named = {"query": "the cat ", "document": "a dog ", "same": "two "}
    model = with_prompts(tmp_path, prompts=named, default_prompt_name="same")
    (one,) = score_models([model], parse_tasks("stsb"), Settings("mean", None, 8, "cpu"))
    assert one.prompts == {"same": "two "}
    text, plain = "a red house", load_model(model, "mean", prompts="")
    for asked, side, prompt in [
        ((), None, "two "), ((), "query", "the cat "), ((), "document", "a dog "), ("query", None, "the cat "),
        ("not ", "document", "not "), (["query=not "], "query", "not "), (["query=not "], "document", "a dog "),
        (["query=not "], None, "two "), (["document=same", "in "], "document", "two "),
        (["document=same", "in "], "query", "in "), ("", "query", ""),
    ]:  # fmt: skip
        made = load_model(model, "mean", prompts=asked).encode(text, side=side)
        assert np.array_equal(made, plain.encode(prompt + text)), (asked, side)
    framed, prompted = (
        load_model(model, "mean", "in {text} ."),
        load_model(model, "mean", "in {text} .", prompts="two "),
    )
    assert np.array_equal(framed.encode(text, side="query"), plain.encode(f"in {text} ."))
    assert np.array_equal(prompted.encode(text), plain.encode(f"in two {text} ."))
    with refuses("prompts.two_prompts", "query", "'b'"):
        Settings(None, None, None, "cpu", prompts=["query=a", "query=b"])


def test_the_sides_of_retrieval_have_their_prompts(tmp_path):
    (tmp_path / "faq.tsv").write_text("query\tpositive\na cat\tthe cat\na dog\tthe dog\n")
    model = with_prompts(tmp_path, prompts={"query": "the cat ", "passage": "a dog "})
    tasks = parse_tasks("retrieval_at_k", [f"retrieval_at_k.file={tmp_path / 'faq.tsv'}"])
    (one,) = score_models([model], tasks, Settings("mean", None, 8, "cpu"))
    assert one.prompts == {"query": "the cat ", "passage": "a dog "}


def test_results_are_also_written_for_mteb(tmp_path, monkeypatch, home):
    pytest.importorskip("mteb", reason="mteb is not installed (extra 'mteb')")
    from mteb.cache import ResultCache

    name = mteb_task.serve(monkeypatch)
    benchmark = mteb_task.serve_benchmark(monkeypatch)
    model = with_prompts(tmp_path, prompts={name: "the cat ", "STS": "two "})
    tasks = parse_tasks(f"mteb/{benchmark}")
    (one,) = score_models([model], tasks, Settings("mean", None, 8, "cpu"))
    assert (list(one.scores), one.prompts) == ([f"mteb/{name}"], {name: "the cat "})
    assert one.exported == [str(home / "mteb")]
    (file,) = (home / "mteb" / "results" / "cse__tiny").rglob(f"{name}.json")
    (entry,) = json.loads(file.read_text())["scores"]["test"]
    assert 100 * entry["main_score"] == pytest.approx(one.scores[f"mteb/{name}"]["main_score"])
    (plain,) = score_models([model], tasks, Settings(None, None, 8, "cpu"))
    found = ResultCache(home / "mteb").load_results(tasks=[name], include_remote=False)
    (result,) = found.model_results
    assert result.model_name == "cse/tiny"
    assert 100 * result.task_results[0].get_score() == pytest.approx(plain.scores[f"mteb/{name}"]["main_score"])
