"""Invalid studies, each with the place, the code and the values of its problem."""

from __future__ import annotations

from tests.cse_cli.recipe.broken_recipes import Broken, whole


def free(name: str, text: str, place: str, code: str, *values: str) -> Broken:
    """Return a study without a paper. Its own lines start at line 4."""
    return whole(name, f'[study]\ntitle = "x"\nrecipe = "ifcl_en"\n{text}\n', place, code, *values)


def table(name: str, text: str, place: str, code: str, *values: str) -> Broken:
    """Return a study of IFCL's Table 5. Its own lines start at line 5."""
    head = '[study]\ntitle = "x"\nrecipe = "ifcl_en"\npaper = "ifcl/queue_length"\n'
    return whole(name, f"{head}{text}\n", place, code, *values)


ROW = '[[study.rows]]\nrow = "M=320"\n'
BROKEN = [
    whole("no_toml", "[study]\ntitle = \n", "2:9", "recipe.not_toml"),
    whole("empty", "[study]\n", "1:2", "recipe.missing_key"),
    whole("no_recipe", '[study]\ntitle = "x"\n[study.grid]\n"queue.length" = [1]\n', "1:2", "recipe.missing_key"),
    whole("no_table", 'study = 3\n', "1:9", "recipe.invalid_value", "should be a table, not 3"),
    whole("two_problems", '[study]\ntitle = 3\nrecipe = "ifcl_en"\nseeds = 0\n', "2:9",
          "recipe.invalid_value", "2 problems in the study", ":4:9: study.seeds"),
    free("no_cells", "", "1:2", "recipe.missing_key"),
    free("unknown_key", "sets = []\n[study.grid]\n'queue.length' = [1]", "4:1",
          "recipe.unknown_key", "unknown key 'sets'", "Did you mean 'set'"),
    free("unknown_row_key", "[[study.rows]]\nrow = 'a'\nst = ['queue.length=3']", "6:1",
          "recipe.unknown_key", "unknown key 'st'", "Did you mean 'set'"),
    free("rows_no_array", "rows = 3", "4:8", "recipe.invalid_value"),
    free("row_without_name", "[[study.rows]]\nset = ['queue.length=3']", "4:9", "recipe.missing_key"),
    free("set_no_array", "set = 'queue.length=3'\n" + ROW, "4:7", "recipe.invalid_value"),
    free("rows_and_grid", ROW + "[study.grid]\n'queue.length' = [1]", "6:8", "recipe.conflict"),
    free("same_row", ROW + ROW, "7:7", "study.repeated"),
    free("same_seed", "seeds = [1, 1]\n" + ROW, "4:13", "study.repeated"),
    free("seed_as_setting", ROW + "set = ['train.seed=3']", "6:8", "study.seed_as_setting"),
    free("seed_in_grid", "[study.grid]\n'train.seed' = [3]", "5:1", "study.seed_as_setting"),
    free("tuned_rows_and_columns", "seeds = [1]\n[[study.rows]]\nrow = 'a'\ntune = { 'queue.length' = [64, 96] }\n"
         "[[study.columns]]\nnames = ['b']", "8:9", "recipe.conflict", "cannot have columns"),
    free("nothing_tuned", ROW + "[study.tune]\n'queue.length' = [64, 96]", "6:8",
         "study.nothing_tuned", "no row is tuned"),
    free("reported", "[[study.rows]]\nrow = 'a'\nreported = 'simcse_em'", "6:12",
         "study.unknown_name", "no paper or list has an average for recipe 'simcse_em'", "Did you mean 'simcse_en'"),
    free("reported_without_baseline", ROW + "[[study.rows]]\nrow = 'a'\nreported = 'ifcl_en'", "8:1",
         "recipe.missing_key", "in the first row, 'M=320'"),
    free("omitted_row", "omit = ['M=321']\n" + ROW, "4:9", "recipe.unknown_row", "Did you mean 'M=320'"),
    free("seed_of_a_trial", "seeds = [0, 1]\n" + ROW + "tune = { 'queue.length' = [64] }", "4:1",
         "study.seed_not_fresh", "seed 0 is one of", "seeds = [1, 2, 3]"),
    free("seed_is_tuned", "seeds = [1]\n" + ROW + "tune = { 'train.seed' = [64] }", "7:10", "study.seed_as_setting"),
    free("tuned_value_twice", "seeds = [1]\n" + ROW + "tune = { 'queue.length' = [64, 64] }", "7:32", "study.repeated"),
    free("no_tuned_values", "seeds = [1]\n" + ROW + "tune = { 'queue.length' = [] }", "7:27", "recipe.invalid_value"),
    free("no_tuned_path", "seeds = [1]\n" + ROW + "tune = { 'queue length' = [64] }", "7:10", "recipe.invalid_path"),
    free("invalid_trial", "seeds = [1]\n" + ROW + "tune = { 'queue.length' = [64, -3] }", "7:27",
         "recipe.invalid_value", "queue.length"),
    free("difference_of_columns", ROW + "[[study.columns]]\nnames = ['a']\n[[study.columns]]\nnames = ['b']\n"
         "[study.figure]\nx = 'difference'", "11:5", "recipe.conflict", "several columns"),
    free("value_twice", "[study.grid]\n'queue.length' = [1, 2, 1]", "5:25", "study.repeated"),
    free("set_twice", ROW + "set = ['queue.length=3', 'queue.length=4']", "6:26", "study.repeated"),
    free("empty_grid", "[study.grid]\n'queue.length' = []", "5:18", "recipe.invalid_value", "at least 1"),
    free("unknown_recipe", "[[study.rows]]\nrow = 'a'\nrecipe = 'ifcl_em'", "6:10",
          "recipe.unknown_recipe", "Did you mean 'ifcl_en'"),
    free("study_as_recipe", "[[study.rows]]\nrow = 'a'\nrecipe = 'studies/ifcl_queue_length'", "6:10",
          "recipe.not_a_recipe"),
    free("setting", ROW + "set = ['train.steps=3', 'queue.lenght=3']", "6:25",
          "recipe.unknown_key", "Did you mean 'length'"),
    free("no_setting", ROW + "set = ['queue.length']", "6:8", "recipe.override_without_value"),
    free("value", "[study.grid]\n'queue.length' = [320, -1]", "5:18",
          "recipe.invalid_value", "should be greater than 0, not -1"),
    free("unset", ROW + "unset = ['queu']", "6:10", "recipe.unknown_path"),
    free("breaks_the_recipe", ROW + "unset = ['views.fraternal']", "4:9", "recipe.unknown_view", "'fraternal'"),
    free("score", "score = 'stsb'\n" + ROW, "4:9", "recipe.invalid_value", 'should be "evaluator.metric"'),
    free("score_unknown", "score = 'stbs.spearman'\n" + ROW, "4:9",
          "study.unknown_name", "no evaluator 'stbs'", "Did you mean 'stsb'"),
    free("metric_unknown", "score = 'stsb.spearmen'\n" + ROW, "4:9",
          "study.unknown_name", "no metric 'spearmen'", "Did you mean 'spearman'"),
    free("axis", ROW + "[study.figure]\nx = 'queue.lengt'", "7:5",
          "study.unknown_name", "has no 'queue.lengt'", "'queue.length'"),
    table("paper", ROW.replace("320", "321"), "6:7",
          "recipe.unknown_row", "table 'ifcl/queue_length' has no row 'M=321'", "Did you mean 'M=320'"),
    table("column", ROW + "[[study.columns]]\nnames = ['STSB']", "8:10",
          "recipe.unknown_column", "no column 'STSB'", "Did you mean 'STS-B'"),
    table("column_twice", ROW + "[[study.columns]]\nnames = ['STS-B', 'STS-B']", "8:19", "study.repeated"),
    table("grid_of_a_table", "[study.grid]\n'queue.length' = [1]", "5:8", "recipe.conflict"),
    whole("unknown_paper", '[study]\ntitle = "x"\nrecipe = "ifcl_en"\npaper = "iflc/a"\n' + ROW, "4:9",
          "recipe.unknown_paper", "unknown paper 'iflc'", "Did you mean 'ifcl'"),
    whole("unknown_table", '[study]\ntitle = "x"\nrecipe = "ifcl_en"\npaper = "ifcl/queue_lenght"\n' + ROW, "4:9",
          "recipe.unknown_table", "no table or figure 'queue_lenght'", "Did you mean 'queue_length'"),
    whole("unknown_parent", '[study]\nextends = "studies/ifcl_queue_lenght"\n', "2:11",
          "recipe.unknown_study", "'studies/ifcl_queue_lenght'", "Did you mean 'studies/ifcl_queue_length'"),
    whole("extends_a_recipe", '[study]\nextends = "ifcl_en"\n', "ifcl_en.toml:1:1", "recipe.not_a_study"),
    whole("extends_itself", '[study]\nextends = "broken.toml"\n', "2:11", "recipe.circular_extends"),
]  # fmt: skip
