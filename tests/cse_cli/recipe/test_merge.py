"""What `extends` and `remove` do to tables."""

from __future__ import annotations

from cse_cli.recipe.load import load, merge, read_chain
from cse_cli.recipe.problems import RecipeError
from tests.support.errors import refuses


def test_tables_are_merged_and_other_values_replaced(write):
    write(
        "a.toml", "[data]\ndataset = ['x', 'y']\nlimit = 3\n[train]\nseed = 1\n[views.v]\naugment = [{ name = 'p' }]\n"
    )
    path = write("b.toml", "extends = 'a.toml'\n[data]\ndataset = ['z']\n[train]\nsteps = 2\n[views.v]\naugment = []\n")
    assert merge(read_chain(path)) == {
        "data": {"dataset": ["z"], "limit": 3},
        "train": {"seed": 1, "steps": 2},
        "views": {"v": {"augment": []}},
    }


def test_three_generations_nearest_wins(write):
    write("a.toml", "title = 'a'\nlanguage = 'a'\ndescription = 'a'\n")
    write("b.toml", "extends = 'a.toml'\ntitle = 'b'\nlanguage = 'b'\n")
    path = write("sub/c.toml", "extends = '../b.toml'\ntitle = 'c'\n")
    sources = read_chain(path)
    assert [source.path.name for source in sources] == ["c.toml", "b.toml", "a.toml"]
    assert merge(sources) == {"title": "c", "language": "b", "description": "a"}


def test_another_component_keeps_inherited_parameters(write):
    write(
        "a.toml",
        "[queue]\nname = 'hippocampus'\nview = 'v'\nlength = 3\nforgetting_rate = 0.1\n"
        "[losses.info_nce]\ntemperature = 0.1\nweight = 2\nviews = { positive = 'p' }\n"
        "[losses.x]\nname = 'info_nce'\ntemperature = 0.2\n",
    )
    path = write(
        "b.toml",
        "extends = 'a.toml'\n[queue]\nname = 'fifo'\nlength = 4\n[losses.info_nce]\nname = 'twins'\n"
        "[losses.x]\nname = 'info_nce'\nweight = 3\n",
    )
    assert merge(read_chain(path)) == {
        "queue": {"name": "fifo", "view": "v", "length": 4, "forgetting_rate": 0.1},
        "losses": {
            "info_nce": {"name": "twins", "temperature": 0.1, "weight": 2, "views": {"positive": "p"}},
            "x": {"name": "info_nce", "temperature": 0.2, "weight": 3},
        },
    }


def test_remove_is_applied_before_merging(write):
    write("a.toml", "[train]\nseed = 1\nsteps = 2\n[queue]\nname = 'fifo'\nlength = 5\n[views.a]\n[views.'b.c']\n")
    path = write(
        "b.toml", "extends = 'a.toml'\nremove = ['queue', 'train.seed', 'views.\"b.c\"']\n[queue]\nname = 'fifo'\n"
    )
    assert merge(read_chain(path)) == {"train": {"steps": 2}, "queue": {"name": "fifo"}, "views": {"a": {}}}


def test_remove_reports_every_unknown_path(write):
    write("a.toml", "[train]\nseed = 1\n")
    path = write("b.toml", "extends = 'a.toml'\nremove = ['train.sead', 'train.seed.x', 3, '', 'a b']\n")
    with refuses("recipe.unknown_path", "Did you mean 'train.seed'") as caught:
        merge(read_chain(path))
    assert isinstance(caught.value, RecipeError)
    assert [problem.where for problem in caught.value.problems] == [f"b.toml:2:{n}" for n in (11, 25, 41, 44, 48)]


def test_merging_does_not_change_the_files(write):
    write("a.toml", "[train]\nseed = 1\n[losses.info_nce]\ntemperature = 0.1\n")
    path = write("b.toml", "extends = 'a.toml'\nremove = ['train.seed']\n[losses.info_nce]\nname = 'twins'\n")
    sources = read_chain(path)
    first = merge(sources)
    first["losses"]["info_nce"]["x"] = 1
    assert sources[1].tables == {"train": {"seed": 1}, "losses": {"info_nce": {"temperature": 0.1}}}
    assert merge(sources) == {"train": {}, "losses": {"info_nce": {"temperature": 0.1, "name": "twins"}}}


def test_a_recipe_of_the_same_name_extends_the_shipped_one(write):
    write("recipes/simcse_en.toml", "extends = 'simcse_en'\n[train]\nseed = 7\n")
    loaded = load("simcse_en")
    assert loaded.recipe.train.seed == 7
    assert len(loaded.origins.sources) == 2


def test_a_shipped_recipe_extends_shipped_ones_only(write):
    write("recipes/simcse_en.toml", "extends = 'simcse_en'\n[train]\nseed = 7\n")
    assert load("simcse_en_large").recipe.train.seed == 42


def test_steps_replace_inherited_epochs_and_vice_versa(write):
    write("a.toml", "[train]\nepochs = 3\nseed = 1\n")
    write("b.toml", "extends = 'a.toml'\n[train]\nsteps = 2\n")
    path = write("c.toml", "extends = 'b.toml'\n[train]\nepochs = 4\n")
    assert merge(read_chain(write("d.toml", "extends = 'b.toml'\n")))["train"] == {"seed": 1, "steps": 2}
    assert merge(read_chain(path))["train"] == {"seed": 1, "epochs": 4}


def test_steps_and_epochs_in_one_file_are_refused_with_both_places(write):
    path = write("own.toml", "extends = 'mini/simcse_en'\ntitle = 'x'\n[train]\nsteps = 4\nepochs = 2\n")
    with refuses("recipe.conflict", "own.toml:5:1: train.epochs: ", "train.steps (own.toml:4:1)"):
        load(str(path))
