"""The shipped studies: each that names a paper answers exactly what its table asks, and has a small version."""

from __future__ import annotations

from functools import cache

import pytest

from cse_cli.data.identity import columns_read
from cse_cli.data.requirements import availability
from cse_cli.recipe.cells import Cell, cells
from cse_cli.recipe.files import all_studies
from cse_cli.recipe.load import load
from cse_cli.recipe.requirements import Requirement, requirements
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.study import Study, load_study, outline, studies_of
from registry import papers
from registry.resources import catalog

pytestmark = pytest.mark.slow

MINI = "studies/mini/"
NAMES = [name for name in all_studies() if not name.startswith(MINI)]
PAPERS = [name for name in NAMES if outline(all_studies()[name]).paper is not None and "/open/" not in name]
SMALL = [name for name in all_studies() if name.startswith(MINI)]
TABLES = [(key, name) for key in papers.names() for name, table in papers.load(key).tables.items() if table.study]


@cache
def study(name: str) -> tuple[Study, tuple[Cell, ...]]:
    found = load_study(name)
    return found, tuple(cells(found))


def hashes(name: str) -> list[str]:
    return [cell.hash for cell in study(name)[1]]


@pytest.mark.parametrize(("key", "identifier"), TABLES, ids=lambda part: part)
def test_a_study_computes_the_cells_of_its_table(key, identifier):
    table = papers.load(key).tables[identifier]
    promised = [(row, c.name) for row, c in table.printed() if table.answer(row, c.name).kind == "study"]
    computed = []
    for cell in study(table.study)[1]:
        computed += [(cell.row, column) for column in cell.columns or [c for row, c in promised if row == cell.row]]
    assert computed == promised  # in printed order, too


@pytest.mark.parametrize("name", PAPERS)
def test_a_study_of_a_paper_answers_something_and_is_found_by_it(name):
    key, identifier = study(name)[0].answers
    assert identifier in papers.load(key).tables or identifier in papers.load(key).figures
    assert name in [found.name for found in studies_of(key, identifier)]


@pytest.mark.parametrize("name", [name for name in PAPERS if name != "studies/mocose_transfer"])
def test_a_study_of_a_paper_has_a_small_version(name):
    """But for the transfer tasks, whose data sets cannot be part of the package."""
    small, own = study(name.replace("studies/", MINI))
    whole = {(cell.row, column) for cell in study(name)[1] for column in cell.columns or ("",)}
    assert {(cell.row, column) for cell in own for column in cell.columns or ("",)} <= whole
    assert all(cell.recipe.startswith("mini/") for cell in own)
    assert small.seed_list == (0, 1, 2)
    assert small.answers == study(name)[0].answers


def test_a_small_study_without_a_full_version_answers_no_paper():
    alone = [name for name in SMALL if name.replace(MINI, "studies/") not in NAMES]
    assert [name for name in alone if study(name)[0].answers is not None] == []


@pytest.mark.parametrize("name", [*NAMES, *SMALL])
def test_no_two_settings_are_the_same_experiment(name):
    own = study(name)[1]
    settings = {cell.hash: (cell.row, cell.recipe, cell.overrides) for cell in own}
    # Columns of one run share it: they differ in what they score.
    assert all(settings[cell.hash] == (cell.row, cell.recipe, cell.overrides) for cell in own)
    assert len(settings) > 1


@pytest.mark.parametrize(
    ("recipe", "rows"),
    [
        ("ifcl_en", {("ifcl_ablation", "IFCL base"), ("ifcl_queue_length", "M=416"), ("ifcl_fig4c", "IFCL")}),
        ("ifcl_zh", {("ifcl_queue_length", "M=448")}),
        ("mini/ifcl_en", {("mini/ifcl_ablation", "IFCL base"), ("mini/ifcl_queue_length", "M=416")}),
        ("ifcl_en_momentum", {("ifcl_fig4c", "MoCo w/ ME")}),
        ("mocose_en", {
            ("mocose_head_layers", "Proj. 1, Pred. 2"), ("mocose_augmentation", "+ FGSM"),
            ("mocose_batch_size", "Size 64"), ("mocose_queue", "Queue 512, Initial 128"),
            ("mocose_queue_age", "normal"), ("mocose_fgsm_epsilon", "5e-9"),
            ("mocose_fig45_collapse", "MoCoSE"), ("mocose_fig8", "FGSM"),
            ("mocose_fig2", "encoders.target.decay=0.85, queue.length=512"),
            ("mocose_fig3", "train.batch_size=64, queue.length=512"), ("mocose_fig10", "queue.initial=128"),
        }),
        ("mocose_en_large", {("mocose_fig12", "train.batch_size=32, queue.length=512")}),
        ("focal_infonce_en", {("focal_infonce_temperature", "tau=0.07"), ("focal_infonce_margin", "m=0.3")}),
        ("focal_infonce_en_large", {("focal_infonce_temperature", "tau=0.07")}),
        ("focal_infonce_en_roberta", {("focal_infonce_temperature", "tau=0.05"), ("focal_infonce_margin", "m=0.3")}),
        ("focal_infonce_en_roberta_large", {("focal_infonce_temperature", "tau=0.05")}),
        ("conisi_s_en", {
            ("conisi_ablation", "ConIsI-s-BERT-base"), ("conisi_sentence_construction", "ConIsI-s BERT-base"),
            ("conisi_lambda", "0.8"),
        }),
    ],
)  # fmt: skip
def test_the_rows_that_are_the_recipe_as_it_stands(recipe, rows):
    wanted = load(recipe).recipe.hash()
    same = [(name, cell) for name in (*NAMES, *SMALL) for cell in study(name)[1] if cell.hash == wanted]
    sideways = {"Avg"}
    found = {(n.removeprefix("studies/"), c.columns[0] if c.row in sideways else c.row) for n, c in same}
    assert found == rows


def test_the_distance_grid_contains_the_best_one():
    """1/(1 − 0.85) + 512/64 = 14.67, and 22.67 with the large encoder's batch of 32."""
    for name, best in (("studies/mocose_fig2", 14.67), ("studies/mocose_fig3", 14.67), ("studies/mocose_fig12", 22.67)):
        distances = set()
        for cell in study(name)[1]:
            said = load(cell.recipe, cell.overrides).recipe.resolved()
            decay, length = said["encoders"]["target"]["decay"], said["queue"]["length"]
            distances.add(round(1 / (1 - decay) + length / said["train"]["batch_size"], 2))
        assert best in distances
        assert min(distances) < best < max(distances)


@cache
def obtainable(one: Requirement) -> bool:
    """Return whether the package contains it, or a command downloads it, or the catalog names one to use instead."""
    if availability(one).state != "missing":
        return True
    instead = catalog.entry(one.name).instead if one.kind == "dataset" else ""
    return bool(instead) and obtainable(Requirement("dataset", instead, one.split))


def lacking(recipe: Recipe) -> list[str]:
    """Return models, data sets, files and columns of a recipe that no command can get or make."""
    lacks = [one.title for one in requirements(recipe) if not obtainable(one)]
    for name, part in recipe.evaluators.items():
        if (dataset := part.params.get("dataset")) is None or catalog.entry(dataset).kind != "text":
            continue
        columns = {*catalog.entry(dataset).columns_of(part.params["split"]), *recipe.data.columns}
        views = {value: recipe.views[value] for _, value in part.params if value in recipe.views}
        read = columns_read(recipe.model_copy(update={"views": views}))
        lacks += [f"column {column} of evaluator {name}" for column in sorted(read - columns)]
    return lacks


@pytest.fixture
def stranger(monkeypatch, tmp_path):
    """Set up a machine with the package and nothing else."""
    for name in ("CSE_DATA", "CSE_MODELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CSE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    obtainable.cache_clear()
    yield
    obtainable.cache_clear()


MI = "evaluators.mi={{ name = 'mutual_information', first = 'anchor', second = 'fraternal', {} }}"


@pytest.mark.parametrize(
    ("recipe", "data", "lacks"),
    [
        ("ifcl_en", "file = 'wiki1m_en_de.tsv'", ["file wiki1m_en_de.tsv"]),
        ("ifcl_en", "dataset = 'wiki1m'", []),  # [data.columns] of the recipe makes the translation
        ("mini/ifcl_en", "dataset = 'wiki1m'", ["column translation of evaluator mi"]),
    ],
)
@pytest.mark.usefixtures("stranger")
def test_data_that_no_command_gets_or_makes_is_found(recipe, data, lacks):
    assert lacking(load(recipe, [MI.format(data).replace("'", '"')]).recipe) == lacks


@pytest.mark.parametrize("name", [*NAMES, *SMALL])
@pytest.mark.usefixtures("stranger")
def test_a_command_gets_or_makes_the_data_of_every_cell(name):
    found = {cell.label: lacking(cell.load(0).recipe) for cell in study(name)[1]}
    assert {label: lacks for label, lacks in found.items() if lacks} == {}
