"""Text to inspect, with the settings of a recipe: columns, tokenizer, maximum length, batch size and evaluators."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cse_cli.data.files import find_files
from cse_cli.data.requirements import DownloadProgress, fetch
from cse_cli.data.sources import Text, find_parts, open_text
from cse_cli.inspection.leakage import sets_of_recipe, sets_on_machine
from cse_cli.recipe.files import all_recipes, bare_file
from cse_cli.recipe.load import changed, load, read
from cse_cli.recipe.overrides import Override, parse_overrides
from cse_cli.recipe.requirements import HUB, of_part, of_training
from cse_cli.recipe.schema import Recipe
from registry import AUGMENTERS, ENCODERS
from registry.errors import CseError, UnknownNameError, suggestion
from registry.resources import catalog
from registry.tokens import Vocabulary
from registry.types import Encoder
from registry.vocabulary import HubVocabulary

DEFAULT = "quickstart"
"""Recipe whose settings a file or a data set gets. Its model is part of the package."""

_SECOND_COLUMN = "views.fraternal.augment"
"""Key of that recipe that requires a column of translations."""

_FILE = re.compile(r"[*?\[\]/]|\.(txt|tsv|csv|json|jsonl|parquet)(\.gz)?$")


@dataclass(frozen=True)
class Roles:
    """Columns of a text by their role in contrastive losses.

    Args:
        anchor: Column of the anchors.
        positive: Column of the positives. It is that of the anchors if the views of a sentence differ otherwise.
        negative: Column of the hard negatives, or None.
    """

    anchor: str
    positive: str
    negative: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Distinct columns, that of the anchors first."""
        return tuple(dict.fromkeys(name for name in (self.anchor, self.positive, self.negative) if name is not None))


@dataclass(frozen=True)
class Subject:
    """A text to inspect.

    Args:
        name: File, data set or recipe, as in the command.
        settings: Name of the recipe with the settings: `name`, or `DEFAULT`.
        recipe: This recipe, with the text.
        text: Rows of the columns in `roles`.
        vocabularies: Tokenizer of each column.
        tokenizer: Name of the tokenizers' models.
        sets: Evaluation set → its distinct sentences.
    """

    name: str
    settings: str
    recipe: Recipe
    text: Text
    roles: Roles
    vocabularies: Mapping[str, Vocabulary]
    tokenizer: str
    sets: Mapping[str, Sequence[str]]


def open_subject(name: str, overrides: Sequence[str], model: str | None, progress: DownloadProgress) -> Subject:
    """Return a file, a data set or the text of a recipe, and download it if it is missing.

    Args:
        name: Path, directory or glob, name of a data set or "hf:owner/name", or name or path of a recipe.
        overrides: Assignments of `--set`.
        model: Model whose tokenizer is used, or None for those of the recipe's encoders.
        progress: Called during downloads.

    Raises:
        CseError: If there is no such text, or the recipe does not train.
        MissingError: If the text or the tokenizer is not on this machine and cannot be downloaded.
    """
    own = name.endswith(".toml") or bare_file(name, study=False) is not None
    recipe = load(name, overrides).recipe if own else _default_recipe(name, overrides)
    if recipe.train.steps == 0:
        raise CseError(
            f"recipe '{name}' does not train, so it has no text",
            "inspect another recipe, a data set or a file: `cse list recipes`, `cse data list`",
            code="inspection.no_text",
        )
    models = [
        one
        for key, part in recipe.encoders.items()
        for one in of_part(f"encoders.{key}", ENCODERS[part.name], part.params)
        if one.kind == "model" and model is None
    ]
    fetch([*of_training(recipe), *models], progress)
    roles = roles_of(recipe) if own else _roles_by_name(recipe)
    vocabularies: dict[str, Vocabulary]
    if model is None:
        found = _vocabularies(recipe)
        vocabularies = {column: found.get(column, found[roles_of(recipe).anchor]) for column in roles.columns}
    else:
        vocabularies = dict.fromkeys(roles.columns, HubVocabulary(model))
        vocabularies[roles.anchor].room(recipe.data.max_length)  # a missing model is an error before the work
    return Subject(
        name,
        name if own else DEFAULT,
        recipe,
        open_text(recipe.data, set(roles.columns)),
        roles,
        vocabularies,
        model or ", ".join(dict.fromkeys(one.name for one in models)) or "the recipe's encoder",
        sets_of_recipe(recipe) if own else sets_on_machine(),
    )


def roles_of(recipe: Recipe) -> Roles:
    """Return the columns of the views that the losses of a recipe contrast."""
    columns = {name: view.column for name, view in recipe.views.items()}
    anchor = next(iter(columns.values()))

    def other(role: str) -> str | None:
        views = (view for loss in recipe.losses.values() for view in loss.views_of(role) if view in columns)
        return next((columns[view] for view in views if columns[view] != anchor), None)

    return Roles(anchor, other("positive") or anchor, other("hard"))


def cut_columns(recipe: Recipe) -> set[str]:
    """Return the columns whose sentences are cut at `data.max_length` before augmenters read them."""
    return {
        view.column
        for view in recipe.views.values()
        if not any(AUGMENTERS[part.name].cls.reads_whole_text for part in view.augment)
    }


def _default_recipe(name: str, overrides: Sequence[str]) -> Recipe:
    """Return the recipe `DEFAULT` with a data set or with files."""
    dataset, _, split = name.partition("/")
    if dataset in catalog.names() and (kind := catalog.entry(dataset).kind) != "text":
        raise CseError(
            f"data set '{dataset}' is of kind '{kind}', not a training text",
            "`cse data list` shows the kinds; `cse show` prints a data set",
            code="inspection.not_a_text",
        )
    if name.startswith(HUB) or dataset in catalog.names():
        unset, given = [], [Override.of("data.dataset", [name if name.startswith(HUB) else dataset])]
        given += [Override.of("data.split", split)] if split and dataset in catalog.names() else []
    elif _FILE.search(name):
        unset, given = ["data.dataset"], [Override.of("data.file", list(map(str, find_files([name]))))]
    else:
        known = [*all_recipes(), *catalog.names()]
        raise UnknownNameError(
            f"'{name}' is neither a recipe, a data set nor a file with a known suffix.{suggestion(name, known)}",
            "`cse list recipes` and `cse data list` show names. Files end in .txt, .tsv, .csv, .jsonl or .parquet",
            code="inspection.unknown_text",
        )
    return changed(read(DEFAULT), [*given, *parse_overrides(overrides)], [*unset, _SECOND_COLUMN]).recipe


def _roles_by_name(recipe: Recipe) -> Roles:
    """Return the columns `text`, `positive` and `negative` of a text."""
    common = set.intersection(*(set(part.columns) for part in find_parts(recipe.data)))
    positive = "positive" if "positive" in common else "text"
    return Roles("text", positive, "negative" if "negative" in common else None)


def _vocabularies(recipe: Recipe) -> dict[str, Vocabulary]:
    """Return the tokenizer of each column that a view reads, with the template of the view."""
    encoders: dict[str, Encoder] = {}
    for key, part in recipe.encoders.items():
        encoders[key] = ENCODERS[part.name].build(part.params, encoders)
    found: dict[str, Vocabulary] = {}
    for view in recipe.views.values():
        vocabulary = encoders[view.encoder].vocabulary
        found.setdefault(view.column, vocabulary if view.template is None else vocabulary.with_template(view.template))
    return found
