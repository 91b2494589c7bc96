"""The settings of every study of a paper start from its recipe and take five steps; of a sweep, its ends."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from cse_cli.core.devices import choose
from cse_cli.recipe.cells import Cell, cells
from cse_cli.recipe.files import all_studies
from cse_cli.recipe.load import load
from cse_cli.recipe.study import load_study, outline
from cse_cli.runs.record import RunRecord
from cse_cli.training.build import prepare
from cse_cli.training.trainer import Trainer
from tests.support.running import Heard
from tests.support.shrunken import Small, small

STEPS = 5


STUDIES = [
    name
    for name, path in all_studies().items()
    if not name.startswith("studies/mini/") and outline(path).paper is not None
]


def trained(study: str) -> list[Cell]:
    """Return the experiments of a study that train, each once; of those that differ by numbers, the two ends."""
    found = {cell.hash: cell for cell in cells(load_study(study))}
    training = [c for c in found.values() if load(c.recipe, c.overrides, c.unset).recipe.train.steps != 0]
    first = {_without_numbers(cell): cell for cell in reversed(training)}
    last = {_without_numbers(cell): cell for cell in training}
    ends = {cell.hash for cell in (*first.values(), *last.values())}
    return [cell for cell in training if cell.hash in ends]


def _without_numbers(cell: Cell) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Return what a setting has in common with those that differ from it by a number alone."""
    changes = tuple(re.sub(r"=-?[\d.]+(e-?\d+)?$", "=", str(one)) for one in cell.overrides)
    return cell.recipe, changes, tuple(cell.unset)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Small:
    """Tiny models, and text enough for the largest batch a table asks for."""
    return small(tmp_path_factory.mktemp("ablations"), rows=300)


@pytest.mark.exhaustive
@pytest.mark.parametrize("study", STUDIES)
def test_five_steps(study, parts, home):
    for number, setting in enumerate(trained(study)):
        takes_five_steps(setting, parts, home / "runs" / f"ablation{number}")


def takes_five_steps(setting: Cell, parts: Small, folder: Path) -> None:
    own = [one for one in setting.overrides if one.keys[0] != "evaluators"]  # nothing is scored
    changed, dropped = parts.options(load(setting.recipe, own, setting.unset).recipe)
    # The row's own settings come last: what it sweeps is not shrunk.
    whole = [*own, *changed, *own, f"train.steps={STEPS}", "evaluate.eval_on_start=false"]
    unset = [*setting.unset, *dropped, "evaluate.metric_for_best_model"]
    loading = load(setting.recipe, whole, unset)
    heard = Heard()
    record = RunRecord("five steps", None, heard)
    prepared = prepare(loading.recipe, 0, choose("cpu"), record)
    folder.mkdir(parents=True)

    trainer = Trainer(prepared, folder, record)
    before = [weight.clone() for weight in trainer.method.parameters()]
    trainer.run()

    assert trainer.progress.step == STEPS, setting.label
    assert len(heard.losses) == len({1, STEPS}), setting.label
    assert all(math.isfinite(loss) for loss in heard.losses), setting.label
    assert any((one != other).any() for one, other in zip(before, trainer.method.parameters(), strict=True))
