"""`cse push`: one commit with model, recipe, result and card, which sentence-transformers loads."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml

import cse_cli
from cse_cli import push
from cse_cli.core.formatting import to_toml
from cse_cli.core.results import Result
from cse_cli.recipe.load import load
from cse_cli.runs.record import folder_of
from tests.fake_hub.fixture import use
from tests.fake_hub.server import FakeHub
from tests.support.command import cse, refused
from tests.support.records import result
from tests.support.shrunken import Small, recipe

pytestmark = pytest.mark.usefixtures("few_pairs", "undrawn")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    (tmp_path / "content").mkdir()
    with FakeHub(tmp_path / "content") as hub:
        use(hub, tmp_path / "hf", monkeypatch)
        yield hub


@pytest.fixture
def results(tmp_path: Path, parts: Small) -> list[Result]:
    return cse_cli.run(recipe(tmp_path, parts, steps=4), seeds=2, device="cpu", progress=False)


@pytest.mark.slow
def test_what_is_pushed_is_loaded_again_with_no_difference(
    hub: FakeHub, results: list[Result], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    run_id = str(results[1].run_id)
    code, out, err = cse("push", run_id[:8], "me/tiny", capsys=capsys)
    assert (code, err) == (0, ""), (err, hub.log)
    assert out.strip() == f"{hub.endpoint}/me/tiny"
    pushed = hub.content / "models/me/tiny"
    assert Result.model_validate_json((pushed / "result.json").read_text()) == results[1]

    again = cse_cli.load_model("me/tiny")
    ours = cse_cli.load_model(run_id).encode(["a cat", "the dog sees it"])
    assert (again.encode(["a cat", "the dog sees it"]) == ours).all()
    sentence_transformers = pytest.importorskip("sentence_transformers")
    theirs = sentence_transformers.SentenceTransformer(str(pushed), device="cpu").encode(
        ["a cat", "the dog sees it"], convert_to_tensor=True
    )
    assert (theirs - torch.from_numpy(ours)).abs().max().item() == 0.0


@pytest.mark.slow
def test_the_card_has_scores_command_and_metadata(results: list[Result], capsys: pytest.CaptureFixture[str]) -> None:
    code, card, _ = cse("push", str(results[0].run_id)[:8], "me/tiny", "--dry-run", capsys=capsys)
    assert code == 0
    metadata = yaml.safe_load(card.split("---\n")[1])
    score = results[0].scores["dev"]["spearman"]
    shown = {one["dataset"]["name"]: one["metrics"][0]["value"] for one in metadata["model-index"][0]["results"]}
    params = tomllib.loads((folder_of(str(results[0].run_id)) / "recipe.toml").read_text())["evaluators"]["dev"]
    data = f"{Path(params['file']).name}/{params['split']}"
    assert shown[data] == round(score, 2)
    both = [result.scores["dev"]["spearman"] for result in results]
    mean, spread = sum(both) / 2, abs(both[0] - both[1]) / 2**0.5
    over_seeds = f"{mean:.2f} ± {spread:.2f}" if spread else f"{mean:.2f}"  # equal scores have no spread
    assert f"| {data} | spearman | {score:.2f} | {over_seeds} |" in card
    assert "cse run recipe.toml --seed 0" in card
    cited = cse("cite", str(results[0].run_id)[:8], capsys=capsys)[1]
    assert "@software{cse," in cited
    assert card.endswith(f"## Citation\n\n```bibtex\n{cited}```\n")


@pytest.mark.parametrize(
    ("model", "base", "license"),
    [
        ("bert-base-uncased", "google-bert/bert-base-uncased", "apache-2.0"),
        ("roberta-base", "FacebookAI/roberta-base", "mit"),
        ("mini_en", None, "apache-2.0"),  # part of the package, not on the Hub
        ("me/unlisted", "me/unlisted", None),
        ("princeton-nlp/unsup-simcse-bert-base-uncased", "princeton-nlp/unsup-simcse-bert-base-uncased", None),
        ("/home/me/my_bert", None, None),
    ],
)
def test_base_model_license_and_data_sets_of_the_card(
    monkeypatch: pytest.MonkeyPatch, model: str, base: str | None, license: str | None
) -> None:
    commits = {f"model {model}": "a" * 40, "dataset C-MTEB/STSB": "b" * 40} if base else {}
    made = result(model=model, commits=commits, scores={"test": {"spearman": 61.0}, "space": {"uniformity": -2.0}})
    parts = '[evaluators.test]\nname = "sts"\ndataset = "cstsb"\nsplit = "dev"\n'
    parts += '[evaluators.space]\nname = "alignment_uniformity"\ndataset = "stsb"\nsplit = "dev"\n'
    monkeypatch.setattr(push, "_find", lambda _: push.Upload(Path(), made, parts, [made], ""))
    card = push.model_card("a run", "me/tiny")
    metadata = yaml.safe_load(card.split("---\n")[1])
    assert (metadata.get("base_model"), metadata.get("license")) == (base, license)
    assert metadata.get("datasets") == (["C-MTEB/STSB"] if base else None)
    first, _ = metadata["model-index"][0]["results"]
    assert first["dataset"] == {"name": "cstsb/dev", "type": "cstsb", "split": "dev"}
    assert "| cstsb/dev | spearman | 61.00 |" in card


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("simcse_en", "on single sentences, without labels, by"),
        ("bsl_en", "on single sentences, without labels, by"),  # a generator makes the other column
        ("sup_simcse_en", "on sentences and the `negative`, `positive` that its data gives them, by"),
    ],
)
def test_the_card_says_what_the_data_gives(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    recipe_text = to_toml(load(name).recipe.resolved())
    made = result(model="bert-base-uncased", scores={"stsb": {"spearman": 61.0}})
    monkeypatch.setattr(push, "_find", lambda _: push.Upload(Path(), made, recipe_text, [made], ""))
    assert text in " ".join(push.model_card("a run", "me/tiny").split())


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("repository", "token", "fault", "code"),
    [
        ("tiny", "hf_x", None, "push.bad_repository"),
        ("me/..", "hf_x", None, "push.bad_repository"),
        ("mé/tiny", "hf_x", None, "push.bad_repository"),
        ("me/tiny", None, None, "push.not_logged_in"),
        ("me/tiny", "hf_x", {"match": "create", "status": 403}, "push.no_access"),
    ],
)
def test_uploads_that_fail(
    hub: FakeHub, results: list[Result], monkeypatch: pytest.MonkeyPatch,
    repository: str, token: str | None, fault: dict[str, object] | None, code: str,
) -> None:  # fmt: skip
    monkeypatch.setattr("huggingface_hub.get_token", lambda: token)
    hub.fail(*([fault] if fault else []))
    error = refused("push", str(results[0].run_id)[:8], repository)
    assert (error.code, error.exit_code) == (code, 2 if code == "push.bad_repository" else 3)
    assert not list(hub.content.rglob("README.md"))


# Help text of `cse push`.


def test_help_of_push(capsys, monkeypatch, snapshot):
    monkeypatch.setenv("COLUMNS", "100")
    _, out, _ = cse("push", "--help", capsys=capsys)
    assert out == snapshot
