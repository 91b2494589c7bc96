"""Study files and their cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from cse_cli.recipe.cells import Cell, cell_tag, cells, headings, values
from cse_cli.recipe.check import check_file
from cse_cli.recipe.files import all_recipes, all_studies
from cse_cli.recipe.load import load
from cse_cli.recipe.problems import RecipeError
from cse_cli.recipe.study import find_study, load_study, studies_of
from tests.cse_cli.analysis.leaderboard_runs import result
from tests.cse_cli.recipe.broken_studies import BROKEN, Broken
from tests.support.command import cse, refused
from tests.support.errors import refuses

SHIPPED = Path(__file__).resolve().parents[3] / "recipes" / "studies"
TABLE = """[study]
title = "Queue length"
paper = "ifcl/queue_length"
recipe = "ifcl_en"
set = ["train.steps=60"]
columns = [{ names = ["STS-B"] }, { names = ["C-STS-B"], recipe = "ifcl_zh", set = ["train.steps=30"] }]
[[study.rows]]
row = "M=320"
set = ["queue.length=320"]
[[study.rows]]
row = "M=384"
set = ["queue.length=384"]
"""


@pytest.mark.parametrize("broken", BROKEN, ids=lambda b: b.name)
def test_broken_study(broken: Broken, folder: Path, home: Path):
    (folder / "broken.toml").write_text(broken.text, encoding="utf-8")
    error = refused("run", "broken.toml")
    assert isinstance(error, RecipeError)
    assert broken.is_in(error), error
    assert not home.exists()
    assert check_file(Path("broken.toml"))["problems"]


def test_cells_of_a_table(folder):
    (folder / "own.toml").write_text(TABLE)
    study = load_study("own.toml")
    assert (study.name, study.answers, study.seed_list) == ("own", ("ifcl", "queue_length"), (0, 1, 2))
    found = cells(study)
    assert [(cell.row, cell.columns, cell.recipe) for cell in found] == [
        ("M=320", ("STS-B",), "ifcl_en"),
        ("M=320", ("C-STS-B",), "ifcl_zh"),
        ("M=384", ("STS-B",), "ifcl_en"),
        ("M=384", ("C-STS-B",), "ifcl_zh"),
    ]
    assert tuple(map(str, found[1].overrides)) == ("train.steps=60", "queue.length=320", "train.steps=30")
    recipe = load("ifcl_zh", ["queue.length=320", "train.steps=30"]).recipe
    assert found[1].hash == recipe.hash()
    assert found[1].load(7).recipe.train.seed == 7
    assert found[1].load(7).recipe.hash() == recipe.hash()
    assert cell_tag(study, found[1]) == "own/M=320/C-STS-B"


def test_a_study_that_extends_another_replaces_keys(folder):
    (folder / "own.toml").write_text(TABLE)
    (folder / "small.toml").write_text(
        '[study]\nextends = "own.toml"\nrecipe = "mini/ifcl_en"\nset = []\nseeds = [4]\n'
        'columns = [{ names = ["STS-B"] }]\n'
    )
    study = load_study("small.toml")
    assert (study.title, study.paper, study.seed_list) == ("Queue length", "ifcl/queue_length", (4,))
    assert [(cell.row, cell.recipe, *map(str, cell.overrides)) for cell in cells(study)] == [
        ("M=320", "mini/ifcl_en", "queue.length=320"),
        ("M=384", "mini/ifcl_en", "queue.length=384"),
    ]
    (folder / "bad.toml").write_text('[study]\nextends = "own.toml"\nunset = ["queu"]\n')
    with refuses("recipe.unknown_path", "bad.toml:3:10: study.unset.0: queu: "):
        cells(load_study("bad.toml"))
    (folder / "worse.toml").write_text('[study]\nextends = "own.toml"\nunset = ["queue"]\n')
    with refuses("recipe.missing_key", "own.toml:7:9: study.rows.0: recipe 'ifcl_en'"):
        cells(load_study("worse.toml"))


def test_a_grid_is_every_combination(folder):
    (folder / "own.toml").write_text(
        '[study]\ntitle = "Grid"\nrecipe = "ifcl_en"\nseeds = 1\n'
        "[study.grid]\nqueue.length = [320, 384]\n'encoders.online.pooling' = ['cls', 'mean']\n"
    )
    found = cells(load_study("own.toml"))
    assert [cell.row for cell in found] == [
        "queue.length=320, encoders.online.pooling=cls",
        "queue.length=320, encoders.online.pooling=mean",
        "queue.length=384, encoders.online.pooling=cls",
        "queue.length=384, encoders.online.pooling=mean",
    ]
    assert tuple(map(str, found[3].overrides)) == ("queue.length=384", 'encoders.online.pooling="mean"')
    assert len({cell.hash for cell in found}) == 4
    assert {cell.columns for cell in found} == {()}


def test_a_grid_replaces_inherited_rows(folder):
    (folder / "own.toml").write_text(TABLE.replace('paper = "ifcl/queue_length"\n', ""))
    (folder / "free.toml").write_text('[study]\nextends = "own.toml"\n[study.grid]\n"queue.length" = [64]\n')
    assert [cell.row for cell in cells(load_study("free.toml"))] == ["queue.length=64"] * 2


def test_a_recipe_beside_the_study(folder, monkeypatch):
    below = folder / "below"
    below.mkdir()
    (below / "mine.toml").write_text('extends = "ifcl_en"\n[train]\nsteps = 5\n')
    (below / "own.toml").write_text('[study]\ntitle = "x"\nrecipe = "mine.toml"\n[study.grid]\n"queue.length" = [64]\n')
    (cell,) = cells(load_study("below/own.toml"))
    assert Path(cell.recipe) == Path("below/mine.toml")
    assert cell.load(1).recipe.train.steps == 5


def test_settings_of_the_command_line_come_last(folder):
    (folder / "own.toml").write_text(TABLE)
    (first, *_) = cells(load_study("own.toml"), ["queue.length=64"], ["tune"])
    assert isinstance(first, Cell)
    assert first.load(0).recipe.queue.params["length"] == 64
    assert first.unset == ("tune",)
    with refuses("recipe.unknown_key", "--set queue.lenght: ", "'lenght'"):
        cells(load_study("own.toml"), ["queue.lenght=64"])


@pytest.mark.slow
def test_studies_are_not_recipes(folder):
    own = folder / "recipes" / "studies"
    own.mkdir(parents=True)
    (own / "mine.toml").write_text(TABLE)
    (own / "broken.toml").write_text("[study]\ntitle = \n")
    (folder / "recipes" / "plain.toml").write_text('extends = "ifcl_en"\n# [study]\n')
    assert "plain" in all_recipes()
    assert not {"studies/mine", "studies/broken"} & set(all_recipes())
    assert {"studies/mine", "studies/broken"} <= set(all_studies())
    assert find_study("studies/mine") == own / "mine.toml"
    assert find_study("ifcl_en") is None
    assert load_study("studies/mine").name == "studies/mine"
    with refuses("recipe.not_a_recipe", "'studies/mine'", "cse run studies/mine"):
        load("studies/mine")
    with refuses("recipe.not_a_recipe", "mine.toml:1:2: study: "):
        load("recipes/studies/mine.toml")
    with refuses("recipe.not_a_study", "plain.toml:1:1: "):
        load_study("recipes/plain.toml")
    with refuses("recipe.unknown_study", "'studies/mime'", "Did you mean 'studies/mine'"):
        load_study("studies/mime")
    assert "studies/mine" in [study.name for study in studies_of("ifcl", "queue_length")]


@pytest.mark.slow
def test_list_and_check(folder, capsys):
    (folder / "own.toml").write_text(TABLE)
    code, out, err = cse("check", "own.toml", "ifcl_en", capsys=capsys)
    assert (code, out, err) == (0, "1 recipe and 1 study checked: all valid\n", "")
    code, out, _ = cse("list", "studies", "--all", capsys=capsys)
    assert code == 0
    line = next(line for line in out.split("\n") if line.startswith("studies/ifcl_queue_length "))
    assert line.split()[-3:] == ["ifcl/queue_length", "5", "3"]
    code, out, _ = cse("list", "recipes", capsys=capsys)
    assert "studies/" not in out


@pytest.mark.slow
def test_a_broken_study_is_listed_too(folder, capsys):
    (folder / "recipes").mkdir()
    (folder / "recipes" / "odd.toml").write_text('[study]\ntitle = "[red]Odd"\n')
    _, out, _ = cse("list", "studies", capsys=capsys)
    assert "[red]Odd (not valid: see `cse check`)" in out


# Which scores the cells of a study are about.


def test_a_printed_column_that_is_no_score_stays_empty():
    """ConIsI's Table 5 prints two columns of differences beside the average."""
    study = load_study("studies/mini/conisi_ablation")
    known = cells(study)
    scored = {"test": {"spearman": 53.0}}
    runs = {known[0].hash: [result(seed, scores=scored, metric_for_best_model="dev.spearman") for seed in (0, 1)]}
    found = values(study, known, runs)
    assert headings(study, found[known[0].row]) == ["Avg"]
    assert found[known[0].row]["Avg"] == pytest.approx([53.0, 53.0])
    assert found[known[1].row]["Avg"] == []
