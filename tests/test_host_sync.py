"""No step makes the host wait for the device: shown for every method without a GPU.

Tensors of torch's meta device have no values, so whatever reads one on the host fails: `.item()`, a branch on a tensor,
boolean masks, `nonzero`. Copies that would wait are seen by how they are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from cse_cli.core.devices import Compute
from cse_cli.data.batches import Batches
from cse_cli.data.sources import open_text
from cse_cli.recipe.load import load
from cse_cli.training import train_step as stepping
from cse_cli.training.build import resolve
from cse_cli.training.train_step import TrainStep
from registry.augmenters.fgsm import Fgsm
from registry.encoders.ema import Ema
from registry.tokens import copy_to_device
from tests.support.chosen import these, trains
from tests.support.shrunken import STEPS, Small

pytestmark = pytest.mark.usefixtures("few_pairs")
DEVICE = torch.device("meta")
FOLDER = Path(__file__).parent.parent / "recipes"
RECIPES = sorted(str(path.relative_to(FOLDER).with_suffix("")) for path in (FOLDER / "mini").rglob("*.toml"))
SOME = ("mini/ifcl_en", "mini/mocose_en", "mini/simcse_en_mlm")
WAITS = {
    # Scores are computed at hidden places only, and how many there are is known on the device alone.
    **dict.fromkeys(
        (
            "mini/simcse_en_mlm",
            "pretrain_mini_en",
            "mini/declutr_en",
            "mini/infocse_en",
            "mini/informin_cl_en",
            "mini/tsdae_en",
        ),
        "nonzero",
    ),
    # The template without its sentence goes through the encoder once for each length, not once for each row.
    **dict.fromkeys(("mini/promptbert_en", "mini/cot_bert_en"), "unique_dim"),
    # The sentences found are read back: they are text.
    "mini/cards_en": "waits",
}
"""Recipe → what its step waits at all the same."""


class Copies(TorchDispatchMode):
    """Refuses copies from the host that wait for the device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        options = dict(kwargs or {})
        if func is torch.ops.aten._to_copy.default and args[0].device.type == "cpu" and options.get("device") == DEVICE:
            assert options.get("non_blocking"), "a copy from the host that waits"
        return func(*args, **options)


class Makers(TorchFunctionMode):
    """Refuses tensors made of Python numbers on the device: they are copied there, and that waits."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        options = dict(kwargs or {})
        made_there = options.get("device") is not None and torch.device(options["device"]) == DEVICE
        assert not (func in (torch.tensor, torch.as_tensor) and made_there), "torch.tensor(…, device=…) waits"
        return func(*args, **options)


@pytest.fixture(autouse=True)
def meta(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a step run on the meta device, which has no autocast and no fused optimizer."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    monkeypatch.setattr("cse_cli.training.method.autocast", lambda *_, **__: nullcontext())
    monkeypatch.setattr(stepping, "make_optimizer", lambda method, _: torch.optim.AdamW(method.parameters()))


def stepper(name: str, parts: Small) -> TrainStep:
    changes, dropped = parts.options(load(name).recipe)
    recipe = load(name, changes, dropped).recipe
    made = resolve(recipe, seed=5)
    method = made.method.train().to(DEVICE)
    for _, component in method.components():
        if isinstance(component, Ema | Fgsm):
            component._checked = True  # what is looked at once, before the first update
    text = open_text(recipe.data, made.columns)
    batches = Batches(text, made.specs, recipe.train.batch_size, recipe.data.max_length, 5)
    return TrainStep(method, batches, recipe.train, Compute(DEVICE, "fp32"), 5, STEPS)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name", these(("mini/ifcl_en", "mini/mocose_en", "mini/simcse_en_mlm"), filter(trains, RECIPES))
)
def test_a_step_reads_nothing_back(name: str, parts: Small) -> None:
    one = stepper(name, parts)
    with Copies(), Makers():
        for done in range(STEPS):
            if name in WAITS:
                with pytest.raises((NotImplementedError, AssertionError), match=WAITS[name]):
                    one.take(done)
                return
            one.take(done)


@pytest.mark.slow
def test_what_is_told_is_true(parts: Small) -> None:
    """Reading a value and waiting copies are both found."""
    one = stepper("mini/simcse_en", parts)
    with pytest.raises(RuntimeError, match="meta"):
        one.take(0, look=lambda loss, _losses, _step: bool(torch.isfinite(loss)))
    with Copies():
        assert copy_to_device(torch.ones(2), DEVICE).device == DEVICE
        with pytest.raises(AssertionError, match="a copy from the host"):
            torch.ones(2).to(DEVICE)
    with Makers(), pytest.raises(AssertionError, match="waits"):
        torch.tensor([1.0], device=DEVICE)
