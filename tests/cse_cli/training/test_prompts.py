"""Templates of views that are prompts: in the scores of a run, in its model, and in its model card."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import cse_cli
from cse_cli.recipe.load import load
from cse_cli.runs.record import folder_of
from cse_cli.training.build import resolve
from registry.prompts import Prompts
from tests.support.command import cse
from tests.support.shrunken import Small, recipe

PAIR = ("two dogs {text}", "the red cat {text}")
PROMPTS = {"query": "two dogs ", "document": "the red cat "}


def with_views(folder: Path, parts: Small, query: str, document: str, more: str = "") -> str:
    """A recipe whose two views have templates."""
    path = recipe(folder, parts, steps=2)
    views = f'[views.query]\ntemplate = "{query}"\n[views.document]\ntemplate = "{document}"\n'
    text = path.read_text().replace("[views.anchor]\n[views.positive]\n", views)
    text = text.replace(
        "[losses.info_nce]\n", '[losses.info_nce]\nviews = { anchor = "query", positive = "document" }\n'
    )
    path.write_text(text + more)
    return str(path)


@pytest.mark.slow
@pytest.mark.xdist_group("sentence_transformers")  # imported by one process
def test_prompts_are_in_the_scores_the_model_and_the_card_of_a_run(
    tmp_path: Path, parts: Small, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "faq.tsv").write_text("query\tpositive\na cat\tthe dog\na big dog\tthe cat sees\nman\tthe tree\n")
    faq = f'file = "{tmp_path}/faq.tsv"'
    path = with_views(tmp_path, parts, *PAIR, f'[evaluators.faq]\nname = "retrieval_at_k"\n{faq}\n')
    (result,) = cse_cli.run(path, device="cpu", progress=False)
    run, texts = str(result.run_id), ["a cat", "the man sees", ""]
    (scored,) = cse_cli.evaluate(
        run, tasks="retrieval_at_k", settings={"retrieval_at_k.file": f"{tmp_path}/faq.tsv"}, progress=False
    )
    assert scored.scores["retrieval_at_k"] == result.scores["faq"]
    assert scored.prompts == PROMPTS
    model = cse_cli.load_model(run)
    assert model.encoder.prompts == Prompts(PROMPTS)
    theirs = model.to_sentence_transformers()
    for side, encode in ((None, theirs.encode), ("query", theirs.encode_query), ("document", theirs.encode_document)):
        np.testing.assert_allclose(encode(texts), model.encode(texts, side=side), rtol=0, atol=1e-6)
    _, card, _ = cse("push", run[:8], "me/tiny", "--dry-run", capsys=capsys)
    for text in (card, (model.folder / "README.md").read_text()):
        assert "model.encode_query(" in text
        assert "model.encode_document(" in text
        assert "- `document`: `'the red cat '`" in text


def prompts_of(path: str, *changes: str, encoder: str = "online") -> Prompts:
    """The prompts that an encoder of a recipe gets."""
    return resolve(load(path, list(changes)).recipe, 0).method.encoder(encoder).prompts


@pytest.mark.slow
def test_an_encoder_of_others_has_their_prompts(tmp_path: Path, parts: Small) -> None:
    path = with_views(tmp_path, parts, *PAIR)
    for values in (["name=ema"], ["name=whitening", "fit_on=target"]):
        changes = [f"encoders.after.{value}" for value in ("of=online", *values)]
        assert prompts_of(path, *changes, "evaluate.encoder=after", encoder="after").named == PROMPTS
    momentum = ["encoders.slow.of=online", "encoders.slow.name=ema", "views.document.encoder=slow"]
    assert prompts_of(path, *momentum).named == {"query": PROMPTS["query"]}
    assert prompts_of(path, *momentum, encoder="slow").named == PROMPTS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("template", "reason"), [("a {text} sings", "more than text before"), ("cat{text}", "splits it differently")]
)
def test_a_template_that_is_no_prompt_is_named_once(tmp_path: Path, parts: Small, template: str, reason: str) -> None:
    path = with_views(tmp_path, parts, PAIR[0], template)
    (result,) = cse_cli.run(path, device="cpu", progress=False)
    run = folder_of(str(result.run_id))
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    (warning,) = [event["text"] for event in events if event["kind"] == "warning" and "template" in event["text"]]
    assert warning.startswith(f"views.document.template = '{template}' is only for training")
    assert reason in warning
    assert f"{warning}." in (run / "model" / "README.md").read_text()
    assert Prompts.read(run / "model") == Prompts({"query": PROMPTS["query"]})


@pytest.mark.slow
def test_evaluation_in_a_template_has_no_prompts_and_one_that_is_read_otherwise_is_named(
    tmp_path: Path, parts: Small
) -> None:
    path = with_views(tmp_path, parts, *PAIR)
    for template in ("the man {text}", "a {text} sings"):
        assert prompts_of(path, f"encoders.online.template={template}") == Prompts()
    assert prompts_of("mini/promptbert_en") == Prompts()
    (note,) = prompts_of(path, "encoders.online.template=cat{text}").notes
    assert note.startswith("encoders.online.template = 'cat{text}': only cse opens the saved model")
