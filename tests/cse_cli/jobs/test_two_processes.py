"""Two processes with half of a batch each compute the gradients of one with the whole batch, in every method."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cse_cli.data.batches import Batches
from cse_cli.data.sources import open_text
from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.load import load
from cse_cli.training.build import Experiment, resolve
from cse_cli.training.method import Method, StepState
from cse_cli.training.train_step import parallel
from registry.distributed import rank, world_size
from tests.support.chosen import distinct, trains
from tests.support.processes import on_ranks, without_dropout
from tests.support.shrunken import small

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("two processes")]  # they share one costly fixture

BATCH = 16
STEPS = 2
PAPERS = ("simcse_en", "ifcl_en", "mocose_en", "focal_infonce_en", "conisi_s_en")
CHANGED = {
    "mocose_en": ["views.query.augment.0.epsilon=0.001", "encoders.target.decay=0.5"],
    "mini/dclr_en": ["losses.info_nce.weight=100.0"],
    "mini/denosent_en": ["losses.denoising.noise=0.0", "losses.denoising.dropout=0.0"],
    "mini/scd_en": ["views.positive.dropout=0.0"],
}
"""Recipe → what is changed so that the comparison can see the part: FGSM's step of 5e-9 changes no gradient; DCLR's
loss is a mean over all pairs; what is drawn uniformly is the same on every process, as dropout is not
(`without_dropout`)."""
Gradients = list[dict[str, Tensor]]


def methods() -> list[str]:
    """Return every method: the papers' recipes and the small ones that train, each set of components once."""
    shipped = [name for name in all_recipes() if name.startswith("mini/")]
    return distinct([*PAPERS, *filter(trains, shipped)])


def experiment(recipe: str, changes: list[str], dropped: list[str]) -> tuple[Experiment, Method]:
    """Return the experiment in double precision, nothing left to chance."""
    made = resolve(load(recipe, changes, dropped).recipe, seed=5)
    method = made.method.double()
    without_dropout(method)
    return made, method.train()


def gradients(made: Experiment, method: Method) -> Gradients:
    """Return parameter → gradient of each of a few steps; after each, weights move a little and components act."""
    recipe = made.recipe
    text = open_text(recipe.data, made.columns)
    batches = Batches(text, made.specs, BATCH, recipe.data.max_length, 7, rank(), world_size())
    forward = parallel(method)
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.05)
    generator = torch.Generator().manual_seed(3)
    found = []
    for index in range(STEPS):
        step = StepState(method, batches.batch(index), index, STEPS, generator)
        torch.autograd.backward(method.objective(forward(step)))
        found.append({k: p.grad.clone() for k, p in method.named_parameters() if p.grad is not None})
        optimizer.step()
        optimizer.zero_grad()
        for _, component in method.components():
            component.after_step(step)
    return found


def of_each(asked: dict[str, tuple[list[str], list[str]]]) -> dict[str, Gradients]:
    """Return recipe → gradients, here or as one of several processes."""
    return {recipe: gradients(*experiment(recipe, *options)) for recipe, options in asked.items()}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Gradients]]:
    """The gradients of all methods: of the first process, of the second, and of one alone."""
    folder = tmp_path_factory.mktemp("both")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CSE_HOME", str(folder / "home"))
        patch.setattr(torch, "rand", torch.rand)  # put back what `without_dropout` replaces
        patch.setattr(torch, "randint_like", torch.randint_like)
        asked = {recipe: options(recipe, folder) for recipe in methods()}
        return [*on_ranks(of_each, asked), of_each(asked)]


@pytest.mark.parametrize("recipe", methods())
def test_gradients_agree(recipe: str, both: list[dict[str, Gradients]]) -> None:
    *shared, alone = (each[recipe] for each in both)
    differences = []
    for one in shared:
        for theirs, ours in zip(one, alone, strict=True):
            assert theirs.keys() == ours.keys()
            differences.append(max(float((theirs[k] - ours[k]).abs().max()) for k in ours))
    largest = max(float(g.abs().max()) for step in alone for g in step.values())
    assert largest > 1e-3, "a comparison of zeros shows nothing"
    assert max(differences) <= 1e-5, json.dumps(differences)


def options(recipe: str, folder: Path) -> tuple[list[str], list[str]]:
    """Return the overrides and removals of a tiny version without dropout."""
    parts = small(folder)
    changes, dropped = parts.options(load(recipe).recipe)
    loaded = [(name, part.name) for name, part in load(recipe).recipe.encoders.items() if "model" in part.params]
    off = [f"encoders.{name}.dropout=0.0" for name, kind in loaded if kind != "static"]  # a table has no dropout
    return [*changes, *off, f"train.batch_size={BATCH}", *CHANGED.get(recipe, [])], dropped
