"""What each cell of a study asks for, before its recipe is loaded: rows × columns, settings joined."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cse_cli.recipe.merge import STUDY
from cse_cli.recipe.positions import Keys
from cse_cli.study.schema import Change, Column, Row, Study, Value


@dataclass(frozen=True)
class Draft:
    """One cell.

    Args:
        keys: Where its row stands in the study's file.
        recipe_keys: Where its recipe is named.
        labels: How messages of the recipe name a setting → where the study writes it.
        column: Its columns, where a study has any.
    """

    row: str
    columns: tuple[str, ...]
    recipe: str
    set: tuple[str, ...]
    unset: tuple[str, ...]
    keys: Keys
    recipe_keys: Keys
    labels: dict[str, Keys]
    column: Column | None


@dataclass(frozen=True)
class _Layer:
    """Settings and where they stand."""

    keys: Keys
    change: Change


def drafts(study: Study) -> Iterator[Draft]:
    """Yield the cells row by row."""
    base = _Layer((STUDY,), study)
    for row_layer, label, labels in _rows(study):
        for number, column in enumerate(study.columns or (None,)):
            layers = [base, row_layer]
            if column is not None:
                layers.append(_Layer((STUDY, "columns", number), column))
            yield _joined(study, label, layers, labels, column)


def _rows(study: Study) -> Iterator[tuple[_Layer, str, dict[str, Keys]]]:
    """Yield settings and label of each row; a grid's combinations are rows too, with the places of their paths."""
    for number, row in enumerate(study.rows):
        yield _Layer((STUDY, "rows", number), row), row.row, {}
    if study.grid:
        places: dict[str, Keys] = {f"--set {path}": (STUDY, "grid", path) for path in study.grid}
        for values in itertools.product(*study.grid.values()):
            pairs = list(zip(study.grid, values, strict=True))
            label = ", ".join(f"{path}={_shown(value)}" for path, value in pairs)
            change = Row(row=label, set=tuple(f"{path}={_toml(value)}" for path, value in pairs))
            yield _Layer((STUDY, "grid"), change), label, places


def _joined(study: Study, row: str, layers: list[_Layer], labels: dict[str, Keys], column: Column | None) -> Draft:
    """Join the study's settings, the row's and the column's; the column's recipe goes before the row's."""
    named = next((layer for layer in reversed(layers) if layer.change.recipe), layers[0])
    places: dict[str, Keys] = {}
    for layer in layers:
        for number, text in enumerate(layer.change.set):
            places[f"--set {text.partition('=')[0].strip()}"] = (*layer.keys, "set", number)
        for number, text in enumerate(layer.change.unset):
            places[f"--unset {text}"] = (*layer.keys, "unset", number)
    return Draft(
        row=row,
        columns=() if column is None else column.names,
        recipe=_beside(named.change.recipe or "", study.path),
        set=tuple(text for layer in layers for text in layer.change.set),
        unset=tuple(dict.fromkeys(text for layer in layers for text in layer.change.unset)),
        keys=layers[1].keys,
        recipe_keys=(*named.keys, "recipe"),
        labels={**places, **labels},
        column=column,
    )


def _beside(recipe: str, study: Path) -> str:
    """Return a recipe as `cse run` takes it; a path counts from the study's folder first."""
    path = study.parent / recipe
    return str(path) if recipe.endswith(".toml") and path.is_file() else recipe


def _toml(value: Value) -> str:
    return json.dumps(value, ensure_ascii=False)


def _shown(value: Value) -> str:
    return value if isinstance(value, str) else _toml(value)
