"""`cse runs ls`: which runs it shows, in which order, and what each line contains."""

from __future__ import annotations

import pytest

from cse_cli.core.results import STS_TASKS
from cse_cli.runs import listing
from cse_cli.runs.index import RecordedRun, read_run
from cse_cli.runs.listing import select_runs
from tests.support.records import recorded, result


def record(recipe: str, score: float | None = None, seconds: float = 1.0, **about: object) -> None:
    if score is None:
        recorded(end="failed", recipe=recipe, seed=1, **about)
    else:
        scores = {"stsb_dev": {"spearman": score}, "stsb": {"spearman": score}}
        recorded(result(recipe=recipe, scores=scores, seconds=seconds, recipe_hash=recipe), **about)


@pytest.fixture
def three() -> None:
    record("mini/simcse_en", 50.0, 3.0, changes=("train.steps=10", "no queue"), tags={"paper": "v2"})
    record("mini/ifcl_en", 60.0, 2.0, tags={"paper": "v1"})
    record("simcse_en")


def shown(**options: object) -> list[str]:
    return [run.about.recipe for run in select_runs(**options)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "recipes"),
    [
        ({}, ["simcse_en", "mini/ifcl_en", "mini/simcse_en"]),
        ({"recipe": "simcse_en"}, ["simcse_en"]),
        ({"recipe": "mini/*"}, ["mini/ifcl_en", "mini/simcse_en"]),
        ({"status": "failed"}, ["simcse_en"]),
        ({"status": "lost"}, []),
        ({"tags": ["paper"]}, ["mini/ifcl_en", "mini/simcse_en"]),
        ({"tags": ["paper=v2"]}, ["mini/simcse_en"]),
        ({"tags": ["paper", "other"]}, []),
        ({"since": "1h"}, ["simcse_en", "mini/ifcl_en", "mini/simcse_en"]),
        ({"since": "2d"}, ["simcse_en", "mini/ifcl_en", "mini/simcse_en"]),
        ({"since": "2999-01-01"}, []),
        ({"sort": "avg"}, ["mini/ifcl_en", "mini/simcse_en", "simcse_en"]),
        ({"sort": "seconds"}, ["mini/simcse_en", "mini/ifcl_en", "simcse_en"]),
        ({"sort": "recipe"}, ["mini/ifcl_en", "mini/simcse_en", "simcse_en"]),
        ({"sort": "status"}, ["simcse_en", "mini/ifcl_en", "mini/simcse_en"]),
    ],
)
def test_runs_are_filtered_and_sorted(three: None, options: dict[str, object], recipes: list[str]) -> None:
    assert shown(**options) == recipes


def test_what_was_set_and_tagged_is_shown(three: None) -> None:
    *_, run = select_runs()
    line = listing.to_document(run)
    assert line["changed"] == ("train.steps=10", "no queue")
    assert (line["tags"], line["note"]) == ({"paper": "v2"}, "paper=v2")
    assert (line["group"], line["status"]) == ("mini/simcse_en", "FINISHED")


@pytest.mark.parametrize(
    ("about", "note"),
    [
        ({"search": "s", "trial": 3}, "trial 3"),
        ({"search": "s"}, "search s"),
        ({"name": "short queue"}, "'short queue'"),
        ({"confirms": "s"}, "confirms s"),
        ({"test_selected": True}, "selected on test data"),
        ({"pulled": "archive a.zip"}, "from archive a.zip"),
    ],
)
def test_the_note_has_what_a_reader_must_know(about: dict[str, object], note: str) -> None:
    record("r", 50.0, **about)
    assert listing.note(select_runs()[0]) == note


def test_a_failed_run_shows_why_and_a_damaged_one_what() -> None:
    failed, damaged = recorded(end=None, recipe="r", seed=0), recorded(result())
    failed.end("failed", "the loss is nan")
    (damaged.path / "result.json").write_text("{")
    with (damaged.path / "events.jsonl").open("a") as file:
        file.write("x\n")
    last, first = select_runs()
    assert listing.note(first) == "the loss is nan"
    assert (first.dev, first.result, last.result) == (None, None, None)
    assert "result.json is damaged" in listing.note(last)
    assert listing.note(last).endswith("1 damaged line in events.jsonl")


def stopped_at(step: int, end: str | None = "stopped", **about: object) -> RecordedRun:
    record = recorded(end=None, **{"recipe": "r", "seed": 0, **about})
    if step:
        record.metrics({"train/loss": 1.0}, step)
    if end is None:
        record.close()
    else:
        record.end(end)
    return read_run(record.run_id)


@pytest.mark.parametrize(("end", "word"), [("stopped", "stopped"), (None, "lost")])
def test_an_interrupted_run_has_its_step_and_the_command_that_resumes_it(end: str | None, word: str) -> None:
    run = stopped_at(37, end)
    assert listing.note(run) == f"{word} at step 37 of 100 (resume: cse run --resume {run.about.short})"
    assert listing.note(stopped_at(0, end, seed=1)).startswith(f"{word} before the first step (resume: cse run ")


def test_a_search_resumes_its_trials_and_a_run_of_another_machine_is_not_resumed() -> None:
    assert listing.note(stopped_at(5, search="s", trial=2)) == "trial 2, stopped at step 5 of 100"
    search = stopped_at(0, search="s", summary="tuning")
    assert listing.note(search) == "search s, stopped (resume: cse tune --resume s)"
    assert listing.note(stopped_at(5, pulled="archive a.zip")) == "from archive a.zip, stopped at step 5 of 100"


def test_trials_are_folded_into_the_line_of_their_search() -> None:
    recorded(recipe="", name="s", search="s", summary="tuning")
    for trial, seeds in ((0, 1), (1, 3)):
        for seed in range(seeds):
            recorded(recipe="r", seed=seed, search="s", trial=trial)
    recorded(recipe="r", seed=0)
    others, folded = listing.fold_trials(select_runs())
    assert [run.about.search for run in others] == ["", "s"]
    assert folded == {"s": 2}
    texts = [[cell.text for cell in row.cells][:2] for row in listing._table(others, 100, folded).rows]
    assert texts == [["r", ""], ["s", "search: 2 trials"]]


def test_names_tags_and_settings_are_a_column() -> None:
    recorded(recipe="r", seed=0, name="short queue", tags={"for": "paper"}, changes=("queue.length=64",))
    (row,) = listing._table(select_runs(), 100, {}).rows
    assert row.cells[1].text == "'short queue', for=paper, length=64"


def test_the_average_is_over_seven_sets_or_over_all_test_sets() -> None:
    seven = {name: {"spearman": 10.0 + place} for place, name in enumerate(STS_TASKS)}
    whole = result(scores={**seven, "own": {"spearman": 99.0}}, untrained=seven)
    assert (whole.average(), whole.gain) == (13.0, 0.0)
    part = result(untrained={"stsb": {"spearman": 60.0}, "sickr": {"spearman": 60.0}})
    assert (part.average(), part.average(untrained=True), part.gain) == (62.0, 60.0, 2.0)
    assert result(untrained={"stsb": {"spearman": 60.0}}).gain is None
    assert result(scores={"stsb_dev": {"spearman": 1.0}}).average() is None
