"""Names → parameters, and the values each of them may take."""

from __future__ import annotations

import re

import pytest

from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.load import LoadedRecipe, load
from cse_cli.tuning.parameter import Parameter
from cse_cli.tuning.ranges import declarations
from cse_cli.tuning.samplers import count_points, distributions
from cse_cli.tuning.space import search_space, tunable
from registry.errors import CseError
from tests.chosen import distinct


@pytest.fixture(scope="module")
def quickstart() -> LoadedRecipe:
    return load("quickstart")


def one(loaded: LoadedRecipe, name: str, *, range: str | None = None, choices: str | None = None) -> Parameter:
    (knob,) = search_space(loaded, [name], [range] if range else (), [choices] if choices else ())
    return knob


def count(parameters):
    return count_points(distributions(parameters))


@pytest.mark.parametrize("name", ["queue_length", "queue.length", "length", "queue-length"])
def test_one_parameter_has_one_name_however_it_is_typed(name, quickstart):
    knob = one(quickstart, name)
    assert (knob.name, knob.paths, knob.default) == ("queue_length", ("queue.length",), 416)
    assert (knob.low, knob.high, knob.step, knob.whole, knob.log) == (64, 512, 32, True, False)
    assert knob.source == "[tune] of the recipe"
    assert knob.overrides(96.0) == ["queue.length=96"]


@pytest.mark.parametrize(
    ("name", "low", "high", "log", "source"),
    [
        # hippocampus declares Tune(1e-4, 0.1, log=True)
        ("forgetting_rate", 1e-4, 0.1, True, "declared by hippocampus"),
        # transformer declares Tune(0.05, 0.3)
        ("online.dropout", 0.05, 0.3, False, "declared by transformer"),
        # ten times 2e-4 on either side
        ("learning_rate", 2e-5, 2e-3, True, "declared by [train]"),
        ("fraternal.augment.0.rate", 0.1, 1.0, False, "declared by fuse_embeddings"),
    ],
)
def test_a_range_nobody_gave(name, low, high, log, source, quickstart):
    knob = one(quickstart, name)
    assert (knob.low, knob.high, knob.log, knob.source) == (pytest.approx(low), pytest.approx(high), log, source)


def test_a_declared_range_is_widened_to_the_recipes_own_value():
    knob = one(load("quickstart", ["encoders.online.dropout=0.03"]), "online.dropout")
    assert (knob.low, knob.high) == (0.03, 0.3)
    assert knob.source == "declared by transformer, widened to the recipe's own 0.03"


def test_choices_come_from_the_type(quickstart):
    assert one(quickstart, "pooling").choices == ("cls", "mean", "last2", "first_last", "mask", "last_mask")
    assert one(quickstart, "head_at_eval").choices == (False, True)
    assert one(quickstart, "schedule").overrides("constant") == ['train.schedule="constant"']


def test_one_value_goes_to_all_paths_of_a_table():
    loaded = load("ifcl_en")
    knob = one(loaded, "temperature")
    assert knob.overrides(1e-05) == ["losses.identical.temperature=1e-05", "losses.fraternal.temperature=1e-05"]
    changed = load("ifcl_en", knob.overrides(1e-05)).recipe
    assert [changed.losses[name].params["temperature"] for name in ("identical", "fraternal")] == [1e-05, 1e-05]
    assert one(loaded, "queue_length").choices == (320, 384, 416, 448, 512)


def test_the_command_line_wins_over_the_table(quickstart):
    knob = one(quickstart, "queue_length", range="64..1000:100")
    # 64, 164, … 964: the end lies on a step
    assert (knob.low, knob.high, knob.step, knob.source) == (64, 964, 100, "--range 64..1000:100")
    assert count([knob]) == 10
    assert one(quickstart, "clip_norm", range="0.1..0.7:0.3").high == 0.7


def test_the_recipes_own_value_is_always_there(quickstart):
    knob = one(quickstart, "queue_length", choices="64, 256")
    assert knob.choices == (416, 64, 256)
    beside = one(quickstart, "queue_length", range="200..300")
    assert (beside.default, beside.holds_default) == (416, False)
    between = one(quickstart, "queue_length", range="100..300:50")
    assert not between.holds_default
    assert one(quickstart, "queue_length").holds_default


def test_several_parameters_with_their_ranges(quickstart):
    ranges = ["queue_length=64..128:32", "learning_rate=1e-4..1e-2:log"]
    knobs = search_space(quickstart, (), ranges, ["pooling=cls,mean"])
    assert [knob.name for knob in knobs] == ["queue_length", "train.learning_rate", "encoders.online.pooling"]
    assert count(knobs) is None
    assert count([knobs[0], knobs[2]]) == 3 * 2
    assert count([one(quickstart, "queue_length", range="64..70")]) == 7


def test_the_identity_says_nothing_of_how_it_was_asked_for(quickstart):
    typed = one(quickstart, "queue_length", range="64..512:32")
    assert typed.source != one(quickstart, "queue_length").source
    assert typed.identity() == one(quickstart, "queue_length").identity()


REFUSED = [
    ("queue_lenght", {}, "no 'queue_lenght'. Did you mean 'queue_length'?"),
    ("temperature", {}, "'temperature' may be 2 parameters\n  → name one: losses.identical.temperature, "),
    ("queue", {}, "'queue' is a table, not a value\n  → name one of its values: queue.view, queue.length"),
    ("evaluators.dev.split", {}, "it changes how models are scored"),
    ("warmup_steps", {}, "train.warmup_steps needs a range: no range is declared for it\n  → add --range a..b"),
    ("freeze", {}, "is an array, which has no single value"),
    ("queue_length", {"range": "512..64"}, "is empty, as 512 is not less than 64\n  → did you mean 64..512?"),
    ("queue_length", {"range": "64..64"}, "is empty, as 64 is not less than 64"),
    ("queue_length", {"range": "-5..64"}, "queue_length cannot be -5: should be greater than 0, not -5"),
    ("queue_length", {"range": "1.5..64"}, "queue_length takes whole numbers, not 1.5"),
    ("queue_length", {"range": "1..1e400"}, "queue_length takes whole numbers, not inf"),
    ("queue_length", {"range": "64-512"}, "'64-512' is not a range\n  → write a..b"),
    ("queue_length", {"range": "64..70:10"}, "a step of 10 leaves nothing but 64"),
    ("queue_length", {"range": "64..70:-1"}, "the step must be greater than 0"),
    ("learning_rate", {"range": "0..1:log"}, "0 cannot be on a log scale"),
    ("queue_length", {"choices": "64"}, "only one value"),
    ("queue_length", {"choices": "64,64"}, "the same value twice"),
    ("queue_length", {"choices": "64,a"}, 'cannot be "a": should be a whole number'),
    ("pooling", {"choices": "cls,meen"}, "Did you mean 'mean'?"),
    ("pooling", {"range": "1..2"}, "is not a number, so it has no range\n  → use --choices cls,mean,last2,first_last"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "given", "message"), REFUSED)
def test_what_cannot_be_searched(name, given, message, quickstart):
    with pytest.raises(CseError, match=re.escape(message)):
        one(quickstart, name, **given)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            (["queue_length,rate"], ["1..5"]),
            "which of 2 parameters is it for?\n  → write --range queue_length=1..5",
        ),
        (((), ["length=1..5", "queue.length=2..6"]), "'queue_length' has a range already"),
        (((),), "no parameter to tune is named"),
    ],
)
def test_ranges_that_belong_to_nothing(asked, message, quickstart):
    with pytest.raises(CseError, match=re.escape(message)):
        search_space(quickstart, *asked)


def test_two_parameters_never_set_the_same_path():
    with pytest.raises(CseError, match=r"both set losses\.identical\.temperature"):
        search_space(load("ifcl_en"), ["temperature", "losses.identical.temperature"])


@pytest.mark.exhaustive
def test_every_range_that_is_declared_holds_in_the_shipped_recipes():
    """The ends of a range beside a parameter are values that a recipe takes, whichever component has it."""
    seen: set[tuple[str, str]] = set()
    for name in distinct(all_recipes()):
        loaded = load(name)
        known = declarations(loaded.recipe)
        for parameter in tunable(loaded.recipe, known):
            kind = (known[parameter].owner, parameter.rpartition(".")[2]) if parameter in known else (name, parameter)
            if kind not in seen:
                seen.add(kind)
                (knob,) = search_space(loaded, [parameter])
                assert knob.choices or knob.low < knob.high
    assert len(seen) > 60
