"""Any recipe made small enough to run in a second: tiny random models, a few sentences, three steps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.catalogue import Pair
from tests.tiny import sentences, tiny_bert, tiny_roberta

STEPS = 3


@dataclass(frozen=True)
class Small:
    """What tiny runs are made of, on disk.

    Args:
        text: A `.tsv` with a `text` and a `translation` column.
        models: Kind of checkpoint → directory.
    """

    text: Path
    models: dict[str, Path]

    def options(self, recipe: Any) -> tuple[list[str], list[str]]:
        """Return the `--set` and the `--unset` that shrink a loaded recipe."""
        tables = recipe.resolved()
        select = tables["evaluate"].get("select", "").rpartition(".")[0]
        changed = [
            f"data.file={self.text}", f"train.steps={STEPS}", "train.batch_size=4", "train.evaluate_every=2",
            "train.precision=fp32",
        ]  # fmt: skip
        dropped = ["data.dataset"] if tables["data"].get("dataset") else []
        for name, encoder in tables["encoders"].items():
            if "model" in encoder:
                changed.append(f"encoders.{name}.model={self._like(encoder['model'])}")
        for name, view in tables["views"].items():
            for place, part in enumerate(view["augment"]):
                if "model" in part:
                    changed.append(f"views.{name}.augment.{place}.model={self._like(part['model'])}")
        if "length" in tables.get("queue", {}):
            changed.append("queue.length=6")
        dropped += [f"evaluators.{name}" for name in tables["evaluators"] if name != select]
        if select:
            changed += [f"evaluators.{select}.dataset=graded_pairs", f"evaluators.{select}.split=dev"]
        return changed, dropped

    def _like(self, model: str) -> Path:
        return self.models["roberta" if "roberta" in model else "bert"]


def small(folder: Path) -> Small:
    """Write text and models below `folder`."""
    text = folder / "text.tsv"
    english, german = sentences(20, seed=1), sentences(20, seed=2)
    rows = [f"{one}\t{other}\n" for one, other in zip(english, german, strict=True)]
    text.write_text("text\ttranslation\n" + "".join(rows), encoding="utf-8")
    return Small(text, {"bert": tiny_bert(folder), "roberta": tiny_roberta(folder)})


def pairs(name: str, split: str) -> list[Pair]:
    """Return a few graded pairs, whatever is asked for: stands in for `catalogue.read_pairs`."""
    left, right = sentences(12, seed=3), sentences(12, seed=4)
    return [Pair("", place / 2, one, other) for place, (one, other) in enumerate(zip(left, right, strict=True))]


def recipe(folder: Path, parts: Small, name: str = "small", **train: Any) -> Path:
    """Write a whole SimCSE recipe over tiny parts; return its path."""
    settings = {"seed": 3, "steps": STEPS, "batch_size": 4, "evaluate_every": 2, **train}
    path = folder / f"{name}.toml"
    path.write_text(
        f'schema = 1\ntitle = "Small [red]one"\n[data]\nfile = "{parts.text}"\n'
        f'[encoders.online]\nname = "transformer"\nmodel = "{parts.models["bert"]}"\npooling = "mean"\n'
        "[views.anchor]\n[views.positive]\n[losses.info_nce]\n"
        '[evaluate]\nselect = "dev.spearman"\n[evaluators.dev]\nname = "sts"\ndataset = "graded_pairs"\n'
        'split = "dev"\n[train]\n' + "".join(f"{key} = {value}\n" for key, value in settings.items()),
        encoding="utf-8",
    )
    return path
