"""Facts about a training text that are alarming: the first step of a run prints them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cse_cli.data.cache import Progress
from cse_cli.data.sources import Text
from cse_cli.inspection import facts
from cse_cli.recipe.schema import Recipe
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


def alarms_before_run(
    text: Text, recipe: Recipe, vocabularies: Mapping[str, Vocabulary], progress: Progress
) -> list[str]:
    """Return the alarming facts about the text of a run.

    They are found in one pass over the text, 4 s for a million rows. Leaks are equal sentences, after white space is
    reduced to single spaces.

    Args:
        text: Text with the columns of the views.
        recipe: Recipe of the run.
        vocabularies: Tokenizer of each column that a view reads.
        progress: Called with the rows done and in total.
    """
    sets, columns = facts.sets_of_recipe(recipe), sorted(facts.cut_columns(recipe) & vocabularies.keys())
    anchor = next(iter(recipe.views.values())).column
    found, lengths = facts.read_once(text, anchor, sets, progress), dict[str, facts.Lengths]()
    for column in columns:
        cells = facts.sample_cells(text, column, np.arange(text.rows), SAMPLE)
        lengths[column] = facts.measure_lengths(cells, vocabularies[column], recipe.data.max_length)
    return alarms_of(found, recipe, sets, lengths)


def alarms_of(
    found: facts.Found, recipe: Recipe, sets: Mapping[str, Sequence[str]], lengths: Mapping[str, facts.Lengths]
) -> list[str]:
    """Return the alarming facts, given all sentences of the evaluation sets."""
    alarms, batch_size = list[str](), recipe.train.batch_size
    copies = 0.0 if recipe.data.unique_in_batch else found.anchors_with_copy(batch_size)
    if len(found.first) == 1 < found.rows:
        alarms.append(
            f"all {found.rows:,} rows of the training text are the same sentence: every negative of a contrastive "
            "loss equals its anchor"
        )
    elif copies > COPIES:
        alarms.append(
            f"{copies:.0%} of the rows of a batch of {batch_size} have an equal sentence in the batch, which "
            f"contrastive losses use as a negative: {found.rows - len(found.first):,} of {found.rows:,} rows repeat an "
            "earlier one"
        )
    leaked = {name: len(sentences) / len(sets[name]) for name, sentences in found.leaks.items()}
    if shares := [f"{name} {share:.0%}" for name, share in leaked.items() if share >= LEAKED]:
        alarms.append(
            f"the training text contains sentences of evaluation sets ({', '.join(shares)}): scores on them cannot be "
            "compared with those of methods that were trained on other text"
        )
    for column, one in lengths.items():
        if one.cut / one.rows > CUT:
            about = "" if one.rows == found.rows else "about "
            alarms.append(
                f"{about}{one.cut / one.rows:.0%} of the rows are cut, because they have more than data.max_length = "
                f"{one.max_length} tokens in the column `{column}`"
            )
    return alarms
