"""Steps of a recipe as in `cse run`, without tracking and scoring."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.training.clock import Clock
from benchmarks.training.material import Setting
from cse_cli.core.devices import choose
from cse_cli.data.batches import Batches
from cse_cli.recipe.load import LoadedRecipe, load
from cse_cli.runs.record import RunRecord
from cse_cli.training.build import prepare
from cse_cli.training.trainer import Trainer

MANY = 1_000_000
"""Default number of steps of the whole training, at which the learning rate hardly decreases."""

PLAIN = """schema = 1
title = "SimCSE without a head"
[data]
file = "{text}"
[encoders.online]
name = "transformer"
model = "{model}"
pooling = "cls"
[views.anchor]
[views.positive]
[losses.info_nce]
temperature = 0.05
"""
"""Recipe of the computation that the peers do too."""


class CseSteps:
    """Steps of a recipe.

    Args:
        setting: Model, text, batch.
        recipe: Name of a shipped recipe. None: SimCSE without a head, as computed by the peers.
        total: Steps of the whole training.
        name: Name in tables.
    """

    def __init__(self, setting: Setting, recipe: str | None = None, total: int = MANY, name: str | None = None) -> None:
        self.name = name or recipe or "cse"
        loaded = _recipe(setting, recipe, total)
        self._folder = tempfile.TemporaryDirectory()
        prepared = prepare(
            loaded.recipe,
            setting.seed,
            choose(setting.device, loaded.recipe.train.precision),
            RunRecord("unrecorded", None),
        )
        self.trainer = Trainer(prepared, Path(self._folder.name), RunRecord("unrecorded", None))
        self.trainer.method.train()
        self.device = prepared.compute.device
        torch.manual_seed(setting.seed)
        self.done = 0

    @property
    def batches(self) -> Batches:
        """Batches, the same for every implementation."""
        return self.trainer.stepper.batches

    def steps(self, count: int, clock: Clock | None = None) -> list[float]:
        """Run `count` steps and return their losses."""
        losses: list[Tensor] = []
        clock = clock or Clock(self.device)
        clock.mark()
        for _ in range(count):
            losses.append(self.trainer.stepper.take(self.done).loss)
            self.done += 1
            clock.mark()
        return [float(loss) for loss in losses]

    def close(self) -> None:
        """Stop the threads of the steps and delete the files."""
        self.trainer.stepper.close()
        self._folder.cleanup()


def sentences(batches: Batches) -> list[str]:
    """Return the text of the batches, by row."""
    return list(batches.text.cells("text"))


def _recipe(setting: Setting, recipe: str | None, total: int) -> LoadedRecipe:
    common = (
        f"data.max_length={setting.length}",
        f"train.batch_size={setting.batch}",
        f"train.precision={setting.precision}",
        f"train.steps={total}",
        *setting.options,
    )
    if recipe is not None:
        return _shipped(setting, recipe, common)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "plain.toml"
        file.write_text(PLAIN.format(text=setting.text, model=setting.model), encoding="utf-8")
        return load(str(file), common)


def _shipped(setting: Setting, recipe: str, common: tuple[str, ...]) -> LoadedRecipe:
    """Return a recipe of the package with the setting's model and text, without evaluators."""
    tables = load(recipe).recipe.resolved()
    second = any("column" in part for view in tables["views"].values() for part in view["augment"])
    changed = [f"data.file={setting.parallel if second else setting.text}"]
    changed += [f"{place}={setting.model}" for place in _models(tables)]
    dropped = [f"evaluators.{name}" for name in tables["evaluators"]]
    dropped += [f"data.columns.{name}" for name in tables["data"].get("columns", {})]
    dropped += ["data.dataset"] if tables["data"].get("dataset") else []
    dropped += ["evaluate.metric_for_best_model"] if "metric_for_best_model" in tables["evaluate"] else []
    return load(recipe, [*changed, *common], dropped)


def _models(tables: Mapping[str, Any]) -> Iterator[str]:
    """Yield the dotted key of every checkpoint in a recipe."""
    for kind in ("encoders", "losses"):
        yield from (f"{kind}.{name}.model" for name, part in tables[kind].items() if "model" in part)
    for name, view in tables["views"].items():
        places = enumerate(view["augment"])
        yield from (f"views.{name}.augment.{place}.model" for place, part in places if "model" in part)
