"""The table after a run: a row a seed, the untrained encoder, mean and spread, what was learned."""

from __future__ import annotations

import json

import pytest

from cse_cli.core.results import Result
from cse_cli.runs.view import print_results, shown_metrics, write_results
from tests.cse_cli.tracking.stores import result


def scored(seed: int, dev: float, **changes: object) -> Result:
    values = {"dev": {"spearman": dev, "pearson": 0.0}, "test": {"spearman": 50.0, "pearson": 0.0}}
    return result(seed=seed, scores=values, **changes)


def rows(out: str) -> list[list[str]]:
    return [line.split() for line in out.rstrip().split("\n")]


SHOWN = {"0123456789abcdef": {"dev": "spearman", "test": "spearman"}}


def test_one_run(capsys):
    print_results([scored(1, 70.126)], SHOWN)
    assert rows(capsys.readouterr().out) == [
        ["mini/simcse_en", "·", "SimCSE"],
        ["dev", "test", "step", "seconds"],
        ["seed", "1", "70.13", "50.00", "250", "12"],
    ]


def test_three_seeds_beside_the_untrained_encoder(capsys):
    untrained = [{"dev": {"spearman": value, "pearson": 0.0}} for value in (30.0, 30.0, 31.0)]
    print_results(
        [scored(s, d, untrained=u) for s, d, u in zip((0, 1, 2), (50.0, 51.0, 52.0), untrained, strict=True)], SHOWN
    )
    assert rows(capsys.readouterr().out)[2:] == [
        ["untrained", "30.00"],
        ["seed", "0", "50.00", "50.00", "250", "12"],
        ["seed", "1", "51.00", "50.00", "250", "12"],
        ["seed", "2", "52.00", "50.00", "250", "12"],
        ["mean", "±", "std", "51.00", "±", "1.00", "50.00", "±", "0.00"],
        ["gain", "+20.67", "±", "0.58"],
    ]


def test_what_test_data_chose_says_so(capsys):
    print_results([scored(1, 70.0, test_selected=True, selected_step=None)], SHOWN)
    assert rows(capsys.readouterr().out)[2] == ["seed", "1", "(test-selected)", "70.00", "50.00", "12"]


def test_recipes_of_one_name_with_other_settings_stand_apart(capsys):
    other = scored(1, 60.0, recipe_hash="f" * 16)
    print_results([scored(1, 70.0), other], {**SHOWN, "f" * 16: {"dev": "pearson", "test": "spearman"}})
    out = capsys.readouterr().out
    assert out.count("mini/simcse_en · SimCSE") == 2
    assert "mean" not in out
    assert rows(out)[-1] == ["seed", "1", "0.00", "50.00", "250", "12"]


def test_the_shown_metric_is_the_component_s():
    assert shown_metrics({"dev": "sts", "other": "sts"}) == {"dev": "spearman", "other": "spearman"}


@pytest.mark.parametrize("count", [0, 2])
def test_json_is_one_document(count, capsys):
    made = [scored(seed, 70.0, title="Satzvergleich: ä") for seed in range(count)]
    write_results(made)
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert [Result.model_validate(one) for one in document["results"]] == made
