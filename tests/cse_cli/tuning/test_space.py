"""Names → parameters, and the values each of them may take."""

from __future__ import annotations

import pytest

from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.load import LoadedRecipe, load
from cse_cli.recipe.overrides import Override
from cse_cli.tuning.parameters import Parameter, declarations, split_values
from cse_cli.tuning.space import search_space, tunable
from cse_cli.tuning.study import points as all_points
from tests.support.chosen import distinct
from tests.support.errors import refuses


@pytest.fixture(scope="module")
def quickstart() -> LoadedRecipe:
    return load("quickstart")


def one(loaded: LoadedRecipe, name: str, *, range: str | None = None, choices: str | None = None) -> Parameter:
    (parameter,) = search_space(loaded, [name], [range] if range else (), [choices] if choices else ())
    return parameter


def count(parameters):
    points = all_points(parameters)
    return None if points is None else len(points)


@pytest.mark.parametrize("name", ["queue_length", "queue.length", "length", "queue-length"])
def test_one_parameter_has_one_name_however_it_is_typed(name, quickstart):
    parameter = one(quickstart, name)
    assert (parameter.name, parameter.paths, parameter.default) == ("queue_length", ("queue.length",), 416)
    assert (parameter.low, parameter.high, parameter.step, parameter.whole, parameter.log) == (64, 512, 32, True, False)
    assert parameter.source == "[tune] of the recipe"
    assert parameter.settings(96.0)[0] == [Override.of("queue.length", 96)]


@pytest.mark.parametrize(
    ("recipe", "name", "low", "high", "log", "source"),
    [
        # hippocampus declares Tune(1e-4, 0.1, log=True), ditto Tune(0.05, 0.3)
        (("quickstart",), "forgetting_rate", 1e-4, 0.1, True, "declared by hippocampus"),
        (("quickstart", ["encoders.online.dropout=0.03"]), "online.dropout", 0.03, 0.3, False,
         "declared by ditto, widened to the recipe's 0.03"),
        # ten times 1e-3 on either side
        (("quickstart",), "learning_rate", 1e-4, 1e-2, True, "declared by [train]"),
    ],
)  # fmt: skip
def test_default_ranges(recipe, name, low, high, log, source):
    found = one(load(*recipe), name)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert (found.log, found.source) == (log, source)


def test_choices_come_from_the_type(quickstart):
    of_layers = ("cls", "mean", "last2", "first_last", "last", "weighted_mean")
    assert one(load("mini/ifcl_en"), "pooling").choices == of_layers  # the others need a template
    assert one(quickstart, "pooling").choices == ("mean", "last2", "first_last")  # those of ditto
    assert one(quickstart, "head_at_eval").choices == (False, True)
    assert one(quickstart, "schedule").settings("constant")[0] == [Override.of("train.schedule", "constant")]


def test_one_value_goes_to_all_paths_of_a_table():
    loaded = load("ifcl_en")
    parameter = one(loaded, "temperature")
    overrides = parameter.settings(1e-05)[0]
    assert overrides == [Override.of(f"losses.{name}.temperature", 1e-05) for name in ("identical", "fraternal")]
    changed = load("ifcl_en", overrides).recipe
    assert [changed.losses[name].params["temperature"] for name in ("identical", "fraternal")] == [1e-05, 1e-05]
    assert one(loaded, "queue_length").choices == (320, 384, 416, 448, 512)


def test_the_command_line_wins_over_the_table(quickstart):
    parameter = one(quickstart, "queue_length", range="64..1000:100")
    # 64, 164, … 964: the end lies on a step
    assert (parameter.low, parameter.high, parameter.step, parameter.source) == (64, 964, 100, "--range 64..1000:100")
    assert count([parameter]) == 10
    assert one(quickstart, "clip_norm", range="0.1..0.7:0.3").high == 0.7


def test_the_recipes_own_value_is_always_there(quickstart):
    parameter = one(quickstart, "queue_length", choices="64, 256")
    assert parameter.choices == (416, 64, 256)
    beside = one(quickstart, "queue_length", range="200..300")
    assert (beside.default, beside.holds_default) == (416, False)
    between = one(quickstart, "queue_length", range="100..300:50")
    assert not between.holds_default
    assert one(quickstart, "queue_length").holds_default


def test_several_parameters_with_their_ranges(quickstart):
    ranges = ["queue_length=64..128:32", "learning_rate=1e-4..1e-2:log"]
    parameters = search_space(quickstart, (), ranges, ["pooling=first_last,mean"])
    names = ["queue_length", "train.learning_rate", "encoders.online.pooling"]
    assert [parameter.name for parameter in parameters] == names
    assert count(parameters) is None
    assert count([parameters[0], parameters[2]]) == 3 * 2
    assert count([one(quickstart, "queue_length", range="64..70")]) == 7


def test_the_identity_does_not_depend_on_the_source(quickstart):
    typed = one(quickstart, "queue_length", range="64..512:32")
    assert typed.source != one(quickstart, "queue_length").source
    assert typed.identity() == one(quickstart, "queue_length").identity()


REFUSED = [
    ("queue_lenght", {}, "unknown_parameter", "'queue_lenght'. Did you mean 'queue_length'"),
    ("temperature", {}, "ambiguous_parameter", "2 parameters", "losses.identical.temperature, losses.fraternal"),
    ("queue", {}, "not_a_value", "'queue' is a table", "queue.view, queue.length"),
    ("evaluators.dev.split", {}, "fixed_parameter", "'evaluators.dev.split'"),
    ("warmup_steps", {}, "no_range", "'train.warmup_steps'", "--range a..b"),
    ("freeze", {}, "not_a_value", "array"),
    ("queue_length", {"range": "512..64"}, "empty_range", "512 is not less than 64", "write 64..512"),
    ("queue_length", {"range": "64..64"}, "empty_range", "64 is not less than 64", "--set"),
    ("queue_length", {"range": "-5..64"}, "invalid_value", "queue_length = -5", "greater than 0"),
    ("queue_length", {"range": "1.5..64"}, "not_whole", "queue_length", "1.5"),
    ("queue_length", {"range": "64-512"}, "not_a_range", "'64-512'", "write a..b"),
    ("queue_length", {"range": "64..70:10"}, "bad_step", "step 10", "at most 6"),
    ("learning_rate", {"range": "0..1:log"}, "log_of_zero", "0..1:log"),
    ("queue_length", {"choices": "64"}, "too_few_choices", "only one value"),
    ("queue_length", {"choices": "64,64"}, "too_few_choices", "the same value twice"),
    ("queue_length", {"choices": "64,a"}, "invalid_value", 'queue_length = "a"'),
    ("queue_length", {"choices": "64,[1]"}, "not_choices", "'64,[1]'"),
    ("pooling", {"choices": "last2,meen"}, "invalid_value", "Did you mean 'mean'?"),
    ("pooling", {"range": "1..2"}, "not_a_number", "pooling", "--choices mean,last2,first_last"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "given", "code", "values"), [(*case[:3], case[3:]) for case in REFUSED])
def test_parameters_that_cannot_be_searched(name, given, code, values, quickstart):
    with refuses(f"tune.{code}", *values):
        one(quickstart, name, **given)


def test_ranges_without_a_parameter_or_for_the_same_path(quickstart):
    with refuses("tune.unnamed_range", "2 parameters", "write --range queue_length=1..5"):
        search_space(quickstart, ["queue_length,rate"], ["1..5"])
    with refuses("tune.two_ranges", "'queue_length'"):
        search_space(quickstart, (), ["length=1..5", "queue.length=2..6"])
    with refuses("tune.no_parameter", "--param", "queue_length"):
        search_space(quickstart, ())
    with refuses("tune.same_path_twice", "'temperature'", "losses.identical.temperature"):
        search_space(load("ifcl_en"), ["temperature", "losses.identical.temperature"])


VALUES = {
    "64, 128": [64, 128],
    "[1e-3, true, 'a, b']": [1e-3, True, "a, b"],
    "[none, a-b, [{name='x', on=true}, {name=y}]]": ["none", "a-b", [{"name": "x", "on": True}, {"name": "y"}]],
    "a.b,3-4": ["a.b", "3-4"],
}


@pytest.mark.parametrize("text", VALUES)
def test_values_are_toml_or_words(text):
    assert split_values(text) == VALUES[text]


@pytest.mark.exhaustive
def test_every_declared_range_is_valid_in_the_shipped_recipes():
    """The ends of a declared range are values that a recipe accepts."""
    seen: set[tuple[str, str]] = set()
    for name in distinct(all_recipes()):
        loaded = load(name)
        known = declarations(loaded.recipe)
        for path in tunable(loaded.recipe, known):
            kind = (known[path].owner, path.rpartition(".")[2]) if path in known else (name, path)
            if kind not in seen:
                seen.add(kind)
                if path.rpartition(".")[2] in ("denoise", "lora_alpha", "lora_dropout"):  # need another setting
                    continue
                (parameter,) = search_space(loaded, [path])
                assert parameter.choices or parameter.low < parameter.high
    assert len(seen) > 60
