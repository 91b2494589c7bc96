"""Studies that are wrong, each in its own way: name, text, and what the message must say of it."""

from __future__ import annotations

from typing import NamedTuple


class Broken(NamedTuple):
    name: str
    text: str
    place: str
    says: tuple[str, ...]


def free(name: str, text: str, place: str, *says: str) -> Broken:
    """Return a free study; its own lines start at line 4."""
    return Broken(name, f'[study]\ntitle = "x"\nrecipe = "ifcl_en"\n{text}\n', place, says)


def table(name: str, text: str, place: str, *says: str) -> Broken:
    """Return a study of IFCL's Table 5; its own lines start at line 5."""
    head = '[study]\ntitle = "x"\nrecipe = "ifcl_en"\npaper = "ifcl/queue_length"\n'
    return Broken(name, f"{head}{text}\n", place, says)


ROW = '[[study.rows]]\nrow = "M=320"\n'
BROKEN = [
    Broken("no_toml", "[study]\ntitle = \n", "2:9", ("not TOML",)),
    Broken("empty", "[study]\n", "1:2", ("[study] needs 'title'",)),
    Broken("no_recipe", '[study]\ntitle = "x"\n[study.grid]\n"queue.length" = [1]\n', "1:2", ("needs 'recipe'",)),
    Broken("no_table", 'study = 3\n', "1:9", ("should be a table, not 3",)),
    Broken("two_problems", '[study]\ntitle = 3\nrecipe = "ifcl_en"\nseeds = 0\n', "2:9",
           ("2 problems in the study", "should be text in quotes", ":4:9: study.seeds")),
    free("no_cells", "", "1:2", "needs rows ([[study.rows]]) or a grid"),
    free("unknown_key", "sets = []\n[study.grid]\n'queue.length' = [1]", "4:1", "unknown key 'sets'",
         "Did you mean 'set'"),
    free("unknown_row_key", "[[study.rows]]\nrow = 'a'\nst = ['queue.length=3']", "6:1", "unknown key 'st'",
         "Did you mean 'set'"),
    free("rows_no_array", "rows = 3", "4:8", "should be an array of tables"),
    free("row_without_name", "[[study.rows]]\nset = ['queue.length=3']", "4:9", "needs 'row'"),
    free("set_no_array", "set = 'queue.length=3'\n" + ROW, "4:7", "should be an array"),
    free("rows_and_grid", ROW + "[study.grid]\n'queue.length' = [1]", "6:8", "either rows or a grid"),
    free("same_row", ROW + ROW, "7:7", "'M=320' stands here twice"),
    free("same_seed", "seeds = [1, 1]\n" + ROW, "4:9", "the same seed twice"),
    free("seed_as_setting", ROW + "set = ['train.seed=3']", "6:8", "say `seeds`"),
    free("seed_in_grid", "[study.grid]\n'train.seed' = [3]", "5:1", "say `seeds`"),
    free("value_twice", "[study.grid]\n'queue.length' = [1, 2, 1]", "5:25", "'1' stands here twice"),
    free("set_twice", ROW + "set = ['queue.length=3', 'queue.length=4']", "6:26", "'queue.length' stands here twice"),
    free("empty_grid", "[study.grid]\n'queue.length' = []", "5:18", "at least 1"),
    free("unknown_recipe", "[[study.rows]]\nrow = 'a'\nrecipe = 'ifcl_em'", "6:10", "unknown recipe 'ifcl_em'",
         "Did you mean 'ifcl_en'"),
    free("study_as_recipe", "[[study.rows]]\nrow = 'a'\nrecipe = 'studies/ifcl_queue_length'", "6:10",
         "is a study, not a recipe"),
    free("setting", ROW + "set = ['train.steps=3', 'queue.lenght=3']", "6:25", "queue.lenght",
         "Did you mean 'length'"),
    free("no_setting", ROW + "set = ['queue.length']", "6:8", "needs a value"),
    free("value", "[study.grid]\n'queue.length' = [320, -1]", "5:18", "should be greater than 0, not -1"),
    free("unset", ROW + "unset = ['queu']", "6:10", "nothing of that name is set"),
    free("breaks_the_recipe", ROW + "unset = ['views.fraternal']", "4:9", "recipe 'ifcl_en' with these settings:",
         "ifcl_en.toml:", "'fraternal'"),
    free("score", "score = 'stsb'\n" + ROW, "4:9", 'should be "evaluator.metric"'),
    free("score_unknown", "score = 'stbs.spearman'\n" + ROW, "4:9", "no evaluator 'stbs'", "Did you mean 'stsb'"),
    free("metric_unknown", "score = 'stsb.spearmen'\n" + ROW, "4:9", "no metric 'spearmen'",
         "Did you mean 'spearman'"),
    free("axis", ROW + "[study.figure]\nx = 'queue.lengt'", "7:5", "has no 'queue.lengt'", "'queue.length'"),
    table("paper", ROW.replace("320", "321"), "6:7", "table 'ifcl/queue_length' has no row 'M=321'",
          "Did you mean 'M=320'"),
    table("column", ROW + "[[study.columns]]\nnames = ['STSB']", "8:10", "no column 'STSB'", "Did you mean 'STS-B'"),
    table("column_twice", ROW + "[[study.columns]]\nnames = ['STS-B', 'STS-B']", "8:19", "stands here twice"),
    table("grid_of_a_table", "[study.grid]\n'queue.length' = [1]", "5:8", "name its rows instead of a grid"),
    Broken("unknown_paper", '[study]\ntitle = "x"\nrecipe = "ifcl_en"\npaper = "iflc/a"\n' + ROW, "4:9",
           ("unknown paper 'iflc'", "Did you mean 'ifcl'")),
    Broken("unknown_table", '[study]\ntitle = "x"\nrecipe = "ifcl_en"\npaper = "ifcl/queue_lenght"\n' + ROW, "4:9",
           ("no table or figure 'queue_lenght'", "Did you mean 'queue_length'")),
    Broken("unknown_parent", '[study]\nextends = "studies/ifcl_queue_lenght"\n', "2:11",
           ("unknown study 'studies/ifcl_queue_lenght'", "Did you mean 'studies/ifcl_queue_length'")),
    Broken("extends_a_recipe", '[study]\nextends = "ifcl_en"\n', "ifcl_en.toml:1:1", ("a recipe, not a study",)),
    Broken("extends_itself", '[study]\nextends = "broken.toml"\n', "2:11", ("circle",)),
]  # fmt: skip
