"""Inspection of a file, a data set or the text of a recipe, as a JSON document and on one screen."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from cse_cli.core.console import Screen, stdout_console
from cse_cli.core.formatting import counted
from cse_cli.core.tables import as_rich, plain_table
from cse_cli.data.files import find_files
from cse_cli.data.requirements import fetch
from cse_cli.data.sources import open_text
from cse_cli.inspection import facts
from cse_cli.recipe.files import all_recipes, bare_file
from cse_cli.recipe.load import changed, load, read
from cse_cli.recipe.overrides import Override, parse_overrides
from cse_cli.recipe.requirements import HUB, requirements
from cse_cli.recipe.schema import Recipe
from registry import ENCODERS
from registry.errors import CseError, MissingError, suggestion
from registry.evaluators.pairs import one_line
from registry.resources import catalog
from registry.tokens import Vocabulary
from registry.types import Encoder

DEFAULT = "quickstart"
"""Recipe whose settings a file or a data set gets. Its model is part of the package."""
SAMPLE = 50_000
"""Maximum number of rows whose lengths are measured. Tokenizers need most of the time."""
NEAR_SAMPLE = 1_000_000
"""Maximum number of distinct sentences that are compared for near-duplicates."""


def find_recipe(name: str, overrides: Sequence[str], removed: Sequence[str]) -> Recipe:
    """Return a recipe, or the recipe `DEFAULT` with a data set or files."""
    if name.endswith(".toml") or bare_file(name, study=False) is not None:
        return load(name, overrides, removed).recipe
    unset = [*removed, "views.fraternal.augment"]  # requires a column of translations
    if name.startswith(HUB) or name in catalog.names():
        text = Override.of("data.dataset", [name])
    else:
        try:
            files = list(map(str, find_files([name])))
        except MissingError as error:
            hint = suggestion(name, [*catalog.names(), *all_recipes()])
            raise MissingError(f"{error.message}{hint and f'.{hint}'}", error.next_action, code=error.code) from None
        text, unset = Override.of("data.file", files), [*unset, "data.dataset"]
    return changed(read(DEFAULT), [text, *parse_overrides(overrides)], unset).recipe


def inspect_text(name: str, overrides: Sequence[str], unset: Sequence[str], screen: Screen) -> dict[str, Any]:
    """Return the facts about a text as JSON values. A missing text or tokenizer is downloaded."""
    recipe = find_recipe(name, overrides, unset)
    if recipe.train.steps == 0:
        raise CseError(
            f"'{name}' does not train, so it has no text", "inspect another recipe", code="inspection.no_text"
        )
    required = [one for one in requirements(recipe) if one.wanted_by[0].startswith(("data.", "encoders."))]
    fetch(required, screen.downloading)
    encoders: dict[str, Encoder] = {}
    for key, part in recipe.encoders.items():
        encoders[key] = ENCODERS[part.name].build(part.params, encoders)
    vocabularies: dict[str, Vocabulary] = {}
    for view in recipe.views.values():
        own = encoders[view.encoder].vocabulary
        vocabularies.setdefault(view.column, own if view.template is None else own.with_template(view.template))
    text, sets = open_text(recipe.data, set(vocabularies)), facts.sets_of_recipe(recipe)
    anchor = next(iter(recipe.views.values())).column
    found = facts.read_once(text, anchor, sets, lambda *count: screen.preparing("comparing sentences", *count))
    distinct = facts.sample_cells(text, anchor, found.first, NEAR_SAMPLE)
    screen.preparing("comparing words", 0, len(distinct))
    near, examples = facts.near_duplicates(distinct)
    screen.preparing("tokenizing")
    lengths = facts.measure_lengths(text, vocabularies, recipe.data.max_length, SAMPLE)
    cut = {column: one for column, one in lengths.items() if column in facts.cut_columns(recipe)}
    return {
        "name": name,
        "rows": text.rows,
        "blank": sum(content.blank for _, content in text.parts),
        "batch_size": recipe.train.batch_size,
        "lengths": {column: asdict(one) for column, one in lengths.items()},
        "distinct": len(found.first),
        "copies": found.copies,
        "frequent": [(one_line(text.sentences(anchor).take([row])[0]), count) for row, count in found.frequent],
        "anchors_with_copy": found.anchors_with_copy(recipe.train.batch_size),
        "near": {"sentences": len(distinct), "near": near, "examples": [one_line(distinct[at]) for at in examples]},
        "searched": {one: len(sentences) for one, sentences in sets.items()},
        "leaks": {one: sentences for one, sentences in found.leaks.items() if sentences},
        "alarms": facts.alarms_of(found, recipe, sets, cut),
    }


def print_inspection(found: dict[str, Any]) -> None:
    """Print the facts about a text on one screen of 80 columns, the alarming ones last."""
    lengths, near = found["lengths"], found["near"]
    copies = f"{found['anchors_with_copy']:.2%} of the rows of a batch of {found['batch_size']}"
    lines = [
        *(f"{_share(one['cut'], one['rows'])} rows of {name} are cut" for name, one in lengths.items()),
        f"{_share(found['rows'] - found['distinct'], found['rows'])} rows are equal to an earlier row",
        *(f"  {count:,} × {_quoted(sentence)}" for sentence, count in found["frequent"]),
        f"{copies} have an equal sentence in the batch",
        f"{_share(near['near'], near['sentences'])} distinct sentences have a near-duplicate",
        *(f"  {_quoted(sentence)}" for sentence in near["examples"]),
        f"{len(found['leaks'])} of {len(found['searched'])} evaluation sets have sentences in the text",
    ]
    for name, leaked in found["leaks"].items():
        lines.append(f"  {name}: {_share(len(leaked), found['searched'][name])}, such as {_quoted(leaked[0])}")
    blank = f", {counted(found['blank'], 'blank row')} skipped" if found["blank"] else ""
    header = ("tokens", "shortest", "5%", "median", "95%", "longest", "limit")
    table = [(name, *(f"{count:,}" for count in (*one["tokens"], one["max_length"]))) for name, one in lengths.items()]
    with stdout_console() as out:
        out.print(f"{found['name']} · {counted(found['rows'], 'row')}{blank}", markup=False, soft_wrap=True)
        out.print(as_rich(plain_table(header, table, align="lrrrrrr")))
        for line in [*lines, *(f"alarm: {alarm}" for alarm in found["alarms"])]:
            style = "yellow" if line.startswith("alarm: ") else None
            out.print(textwrap.fill(line, 80, subsequent_indent="    "), style=style, markup=False, soft_wrap=True)


def _share(count: int, total: int) -> str:
    return f"{count:,} of {total:,} ({count / max(1, total):.2%})"


def _quoted(sentence: str) -> str:
    return f'"{textwrap.shorten(sentence, 60, placeholder=" …")}"'
