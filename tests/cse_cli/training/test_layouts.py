"""Every method's losses and gradients are those of a padded batch held in memory whole, over three steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from cse_cli.data.batches import Batches
from cse_cli.data.sources import open_text
from cse_cli.recipe.load import load
from cse_cli.training.build import Experiment, resolve
from cse_cli.training.method import StepState
from registry.encoders import blocks
from registry.encoders.transformer import TransformerEncoder
from tests.support.chosen import distinct, these, trains
from tests.support.shrunken import small

FOLDER = Path(__file__).parents[3] / "recipes" / "mini"
SOME = ("mini/ifcl_en", "mini/mocose_en")
SHIPPED = sorted(f"mini/{path.stem}" for path in FOLDER.glob("*.toml"))
METHODS = distinct([*SOME, *filter(trains, SHIPPED)])
WAYS = {"padded": None, "packed": None, "small packs": None, "cached": 3, "cached, padded": 2}
"""How rows are laid out → rows held in memory at a time. Most methods are tried packed, with and without the cache."""
MOST = ("padded", "packed", "cached")
FGSM = "epsilon"
CHANGED = {
    "mini/arccse_en": ["views.positive.template='a {text}'"],
    "mini/dclr_en": ["losses.info_nce.weight=100.0"],
    "mini/scd_en": ["losses.decorrelation.weight=1e-4"],
}
"""Recipe → what is changed: between views that are alike, where dropout is off, ArcCSE's angle of 0 has no gradient;
DCLR's loss is a mean over all pairs;
SCD's projector normalizes over eight rows, and its steps are so large that the rounding of the first, 2e-13, is 1e-9 at
the third."""
STEPS = 3


def built(recipe: str, folder: Path, way: str) -> Experiment:
    """Return the experiment in double precision, dropout off."""
    plain = load(recipe).recipe
    changes, dropped = small(folder).options(plain)
    changes += CHANGED.get(recipe, [])
    dropped = [*dropped, *(f"views.{view}.dropout" for view, made in plain.views.items() if made.dropout is not None)]
    for view, made in plain.views.items():
        places = [place for place, part in enumerate(made.augment) if FGSM in part.params]
        changes += [f"views.{view}.augment.{place}.{FGSM}=0.001" for place in places]  # its own changes no gradient
    if WAYS[way]:
        changes.append(f"train.mini_batch_size={WAYS[way]}")
    one = resolve(load(recipe, [*changes, "train.batch_size=8"], dropped).recipe, seed=5)
    for module in one.method.double().train().modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if way == "padded" and isinstance(module, TransformerEncoder):
            module.expect(hidden_read=True, mini_batch_size=None)
    return one


def gradients(recipe: str, folder: Path, way: str, patch: pytest.MonkeyPatch) -> list[dict[str, Tensor]]:
    """Return losses and gradients of three steps, weights moving between them."""
    if "padded" in way:
        patch.setattr(blocks, "_packs", lambda *_: False)
    if way == "small packs":
        patch.setattr(blocks, "PACK_TOKENS", 12)
    made = built(recipe, folder, way)
    method = made.method
    batches = Batches(open_text(made.recipe.data, made.columns), made.specs, 8, made.recipe.data.max_length, 7)
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.05)
    generator = torch.Generator().manual_seed(3)
    found = []
    for index in range(STEPS):
        torch.manual_seed(index)
        step = StepState(method, batches.batch(index), index, STEPS, generator)
        losses = method(step)
        method.objective(losses).backward()
        found.append({k: p.grad.clone() for k, p in method.named_parameters() if p.grad is not None} | losses)
        optimizer.step()
        optimizer.zero_grad()
        for _, component in method.components():
            component.after_step(step)
    return found


@pytest.mark.exhaustive
@pytest.mark.parametrize("recipe", these(SOME, METHODS))
def test_every_layout_gives_the_losses_of_the_padded_one(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CSE_HOME", str(tmp_path / "home"))
    outcome = {}
    for way in WAYS if recipe in SOME else MOST:
        with pytest.MonkeyPatch.context() as patch:
            outcome[way] = gradients(recipe, tmp_path, way, patch)
    expected = outcome.pop("padded")
    assert max(float(value.detach().abs().max()) for step in expected for value in step.values()) > 1e-3
    for way, found in outcome.items():
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.keys() == theirs.keys()
            for name, value in ours.items():
                told = f"{way}: {name}"
                torch.testing.assert_close(value, theirs[name], rtol=1e-9, atol=1e-10, msg=told)
