"""Sentences of evaluation sets in a text: which sets are searched for, and what is counted."""

from __future__ import annotations

from cse_cli.inspection.leakage import Leak, find_leaks, sets_of_recipe, sets_on_machine
from cse_cli.recipe.load import load


def test_counts_by_hand():
    sets = {"one/test": ["A dog.", "a DOG", "Two cats", "!"], "two/dev": ["a dog", "birds"], "three/dev": ["fish"]}
    text = ["A  dog. ", "a dog?", "two, cats", "two cats run", "!", "A dog."]
    assert find_leaks(text, sets) == [
        # Of "A dog." and "a DOG", the first is a row, and three rows have the words of both.
        Leak("one/test", sentences=4, exact=1, same_words=3, rows=4, examples=("A dog.", "a DOG", "Two cats")),
        Leak("two/dev", sentences=2, exact=0, same_words=1, rows=3, examples=("a dog",)),
    ]


def test_the_sets_of_a_recipe_are_those_of_its_evaluators_and_of_the_package(folder):
    (folder / "pairs.tsv").write_text("score\tsentence1\tsentence2\n1\ta b\tc\n2\ta  b\td\n", encoding="utf-8")
    changes = ["evaluators.own.name=sts", "evaluators.own.file=pairs.tsv", "evaluators.own.split=test"]
    sets = sets_of_recipe(load("quickstart", changes).recipe)
    assert set(sets) == {"stsb_open/dev", "stsb_open/test", "pairs.tsv"}
    assert sets["pairs.tsv"] == ["a b", "c", "d"]


def test_sets_that_are_not_on_this_machine_are_left_out():
    changes = ["evaluators.far.name=sts", "evaluators.far.dataset=sickr"]
    assert set(sets_of_recipe(load("quickstart", changes).recipe)) == {"stsb_open/dev", "stsb_open/test"}
    assert set(sets_on_machine()) == {"stsb_open/dev", "stsb_open/test"}


def test_the_training_text_is_no_evaluation_set():
    changes = [
        "evaluators.own.name=retrieval_at_k", "evaluators.own.dataset=tatoeba_open", "evaluators.own.split=train",
        "evaluators.own.query_column=text", "evaluators.own.positive_column=translation",
    ]  # fmt: skip
    assert set(sets_of_recipe(load("quickstart", changes).recipe)) == {"stsb_open/dev", "stsb_open/test"}
