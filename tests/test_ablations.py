"""Every row of the papers' ablation and sweep tables starts from a recipe and takes five steps."""

from __future__ import annotations

import math

import pytest

from cse_cli.job import Job
from cse_cli.observer import Silent
from cse_cli.recipe.load import load
from cse_cli.running import prepare
from cse_cli.tracking import NullTracker
from cse_cli.training.loop import Trainer
from registry import papers
from tests.ablations import Setting, settings
from tests.shrunken import Small, small

STEPS = 5
TABLES = {"ifcl": {2}, "mocose": set(range(3, 10)), "focal_infonce": {4, 5}, "conisi": {5, 6, 7}}
"""Paper → the numbers of its ablation and sweep tables."""
SETTINGS = settings()


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Small:
    """Tiny models, and text enough for the largest batch a table asks for."""
    return small(tmp_path_factory.mktemp("ablations"), rows=300)


class Losses(Silent):
    """Keeps the losses it hears of."""

    def __init__(self) -> None:
        self.seen: dict[int, float] = {}

    def stepped(self, step: int, loss: float, rate: float) -> None:
        self.seen[step] = loss


def loaded(setting: Setting):
    return load(setting.recipe, setting.set, setting.unset)


def test_every_printed_number_has_a_setting_and_only_one():
    printed = {
        (key, identifier, row, column)
        for key, numbers in TABLES.items()
        for identifier, table in papers.load(key).tables.items()
        if table.number in numbers
        for row in table.rows
        for column, value in table.values(row).items()
        if value is not None
    }
    covered = []
    for setting in SETTINGS:
        table = papers.load(setting.paper).tables[setting.table]
        columns = setting.columns or [c for c, value in table.values(setting.row).items() if value is not None]
        covered += [(setting.paper, setting.table, setting.row, column) for column in columns]
    assert sorted(set(covered)) == sorted(covered)
    assert set(covered) == printed
    assert len(SETTINGS) == 115


def test_settings_stand_in_printed_order():
    order = [(key, table) for key in TABLES for table in papers.load(key).tables]
    seen = list(dict.fromkeys((s.paper, s.table) for s in SETTINGS))
    assert seen == [place for place in order if place in seen]
    for key, identifier in seen:
        rows = list(dict.fromkeys(s.row for s in SETTINGS if (s.paper, s.table) == (key, identifier)))
        assert rows == list(papers.load(key).tables[identifier].rows)


def test_the_small_recipes_take_every_setting_too():
    small_ones = settings(mini=True)
    assert [s.name for s in small_ones] == [s.name for s in SETTINGS]
    assert all(s.recipe.startswith("mini/") for s in small_ones)
    for setting in small_ones:
        assert loaded(setting).recipe.losses


@pytest.mark.parametrize("table", list(dict.fromkeys((s.paper, s.table) for s in SETTINGS)), ids="/".join)
def test_no_two_rows_are_the_same_experiment(table):
    hashes = [loaded(s).recipe.hash() for s in SETTINGS if (s.paper, s.table) == table]
    assert len(hashes) > 1
    assert len(set(hashes)) == len(hashes)


@pytest.mark.parametrize(
    ("recipe", "rows"),
    [
        ("ifcl_en", {"ifcl.ablation · IFCL base"}),
        (
            "mocose_en",
            {
                "mocose.head_layers · Proj. 1, Pred. 2", "mocose.augmentation · + FGSM",
                "mocose.batch_size · Size 64", "mocose.queue · Queue 512, Initial 128", "mocose.queue_age · normal",
                "mocose.fgsm_epsilon · 5e-9",
            },
        ),
        ("focal_infonce_en", {"focal_infonce.temperature · tau=0.07", "focal_infonce.margin · m=0.3"}),
        ("focal_infonce_en_large", {"focal_infonce.temperature · tau=0.07"}),
        ("focal_infonce_en_roberta", {"focal_infonce.temperature · tau=0.05", "focal_infonce.margin · m=0.3"}),
        ("focal_infonce_en_roberta_large", {"focal_infonce.temperature · tau=0.05"}),
        ("conisi_s_en", {
            "conisi.ablation · ConIsI-s-BERT-base", "conisi.sentence_construction · ConIsI-s BERT-base",
            "conisi.lambda · 0.8",
        }),
    ],
)  # fmt: skip
def test_the_row_that_is_the_recipe_as_it_stands(recipe, rows):
    wanted = load(recipe).recipe.hash()
    same = [s for s in SETTINGS if loaded(s).recipe.hash() == wanted]
    sideways = {"Avg"}
    assert {f"{s.paper}.{s.table} · {s.columns[0] if s.row in sideways else s.row}" for s in same} == rows


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name.replace(" · ", "-"))
def test_five_steps(setting, parts, home):
    changed, dropped = parts.options(loaded(setting).recipe)
    # The row's own settings come last: what it sweeps is not shrunk.
    whole = [*setting.set, *changed, *setting.set, f"train.steps={STEPS}", "evaluate.untrained=false"]
    unset = [*setting.unset, *dropped, "evaluate.select"]
    loading = load(setting.recipe, whole, unset)
    heard = Losses()
    prepared = prepare(Job(loading, 0, "cpu"), heard)
    folder = home / "runs" / "ablation"
    folder.mkdir(parents=True)

    trainer = Trainer(prepared, folder, NullTracker(), heard)
    before = [weight.clone() for weight in trainer.method.parameters()]
    trainer.run()

    assert trainer.progress.step == STEPS
    assert list(heard.seen) == [1, STEPS]
    assert all(math.isfinite(loss) for loss in heard.seen.values())
    assert any((one != other).any() for one, other in zip(before, trainer.method.parameters(), strict=True))
