"""Facts about a training text that are alarming: the first step of a run prints them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cse_cli.core import paths
from cse_cli.data.cache import Facts, Progress, cached
from cse_cli.data.sources import Text
from cse_cli.inspection.duplicates import Duplicates, find_duplicates
from cse_cli.inspection.facts import Inspection, Lengths, measure_lengths, sample_cells
from cse_cli.inspection.leakage import sets_of_recipe
from cse_cli.inspection.subject import cut_columns, roles_of
from cse_cli.recipe.schema import Recipe
from registry.evaluators.pairs import one_line
from registry.tokens import Vocabulary

COPIES = 0.05
"""Share of the rows of a batch with an equal sentence in the batch. Contrastive losses use it as a negative, so that
one in 20 rows is moved away from its own sentence."""

LEAKED = 0.01
"""Share of the sentences of an evaluation set that occur in the text. Below it they change no score visibly."""

CUT = 0.5
"""Share of the rows that are cut: the majority of the sentences is not trained on as a whole."""

SAMPLE = 2000
"""Rows that are tokenized before a run. The standard error of a share is at most 1.1 points."""

PROGRESS_EVERY = 1 << 18
"""Rows between two reports of progress, about a second."""

VERSION = "1"
"""Part of the key of stored alarms. Raise it if the same text gives others."""


def alarms_of(inspection: Inspection, recipe: Recipe) -> list[str]:
    """Return the alarming facts of an inspection."""
    lengths = {column: one for column, one in inspection.lengths.items() if column in cut_columns(recipe)}
    shares = {leak.name: leak.share for leak in inspection.leaks}
    return list(_alarms(inspection.duplicates, recipe, shares, lengths))


def alarms_before_run(
    text: Text, recipe: Recipe, vocabularies: Mapping[str, Vocabulary], progress: Progress
) -> list[str]:
    """Return the alarming facts about the text of a run.

    They are found in one pass over the text, 4 s for a million rows, and stored under the digest of the text. Leaks are
    equal sentences, after white space is reduced to single spaces.

    Args:
        text: Text with the columns of the views.
        recipe: Recipe of the run.
        vocabularies: Tokenizer of each column that a view reads.
        progress: Called with the rows done and in total.
    """
    sets, columns = sets_of_recipe(recipe), sorted(cut_columns(recipe) & vocabularies.keys())
    settings = recipe.data.max_length, recipe.train.batch_size, recipe.data.unique_in_batch, roles_of(recipe).anchor
    tokenizers = [(column, vocabularies[column].fingerprint) for column in columns]
    key = hashlib.sha256(repr((VERSION, text.fingerprint, settings, tokenizers, list(sets.items()))).encode())

    def write(draft: Path) -> Facts:
        duplicates, shares = _read(text, roles_of(recipe).anchor, sets, progress)
        lengths = {
            column: measure_lengths(sample_cells(text, column, SAMPLE), vocabularies[column], recipe.data.max_length)
            for column in columns
        }
        found = list(_alarms(duplicates, recipe, shares, lengths))
        draft.write_text("\n".join(found), encoding="utf-8")
        return {"alarms": found}

    path = paths.cache() / "alarms" / f"{key.hexdigest()[:32]}.txt"
    alarms: list[str] = cached(path, write)["alarms"]
    return alarms


def _read(
    text: Text, column: str, sets: Mapping[str, Sequence[str]], progress: Progress
) -> tuple[Duplicates, dict[str, float]]:
    """Return the duplicates of a column, and set → share of its sentences that occur in it."""
    known = {sentence for sentences in sets.values() for sentence in sentences}
    found: set[str] = set()

    def lines() -> Iterator[str]:
        for done, cell in enumerate(text.cells(column), start=1):
            if (line := one_line(cell)) in known:
                found.add(line)
            if done % PROGRESS_EVERY == 0:
                progress(done, text.rows)
            yield line

    return find_duplicates(lines()).duplicates, {
        name: len(found.intersection(of)) / len(of) for name, of in sets.items()
    }


def _alarms(
    duplicates: Duplicates, recipe: Recipe, leaked: Mapping[str, float], lengths: Mapping[str, Lengths]
) -> Iterator[str]:
    batch_size = recipe.train.batch_size
    copies = 0.0 if recipe.data.unique_in_batch else duplicates.anchors_with_copy(batch_size)
    if duplicates.distinct == 1 < duplicates.rows:
        yield (
            f"all {duplicates.rows:,} rows of the training text are the same sentence: every negative of a contrastive "
            "loss equals its anchor"
        )
    elif copies > COPIES:
        yield (
            f"{copies:.0%} of the rows of a batch of {batch_size} have an equal sentence in the batch, which "
            f"contrastive losses use as a negative: {duplicates.repeats:,} of {duplicates.rows:,} rows repeat an "
            "earlier one"
        )
    if shares := [f"{name} {share:.0%}" for name, share in leaked.items() if share >= LEAKED]:
        yield (
            f"the training text contains sentences of evaluation sets ({', '.join(shares)}): scores on them cannot be "
            "compared with those of methods that were trained on other text"
        )
    for column, one in lengths.items():
        if one.cut_share > CUT:
            about = "" if one.rows == duplicates.rows else "about "
            yield (
                f"{about}{one.cut_share:.0%} of the rows are cut, because they have more than data.max_length = "
                f"{one.max_length} tokens in the column `{column}`"
            )
