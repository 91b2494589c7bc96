"""Invalid recipes, each with the place, the code and the values of its problem.

The own lines of a child start at line 2, after `extends`.
"""

from __future__ import annotations

from typing import NamedTuple

from cse_cli.recipe.problems import RecipeError


class Broken(NamedTuple):
    name: str
    text: str
    place: str
    code: str
    values: tuple[str, ...]

    def is_in(self, error: RecipeError) -> bool:
        """Return whether an error contains the problem with its place, code and values."""
        place = f"broken.toml:{self.place}" if self.place[0].isdigit() else self.place
        codes = [problem.code for problem in error.problems if place in problem.where]
        return self.code in codes and all(value in str(error) for value in self.values)


def child(name: str, text: str, place: str, code: str, *values: str) -> Broken:
    return Broken(name, f'extends = "simcse_en"\n{text}', place, code, values)


def whole(name: str, text: str, place: str, code: str, *values: str) -> Broken:
    return Broken(name, text, place, code, values)


BROKEN = [
    # not TOML
    whole("syntax", "title = \n", "1:9", "recipe.not_toml"),
    whole("duplicate_key", "[train]\nseed = 1\nseed = 2\n", "3:9", "recipe.not_toml"),
    whole("nested_too_deep", f"a = {'[' * 5000}", "1:1", "recipe.not_toml"),
    # extends, remove
    whole("unknown_parent", 'extends = "simcse_enn"\n', "1:11",
          "recipe.unknown_recipe", "unknown recipe 'simcse_enn'", "Did you mean 'simcse_en'"),
    whole("parent_no_text", "extends = 3\n", "1:11", "recipe.invalid_value"),
    whole("extends_itself", 'extends = "broken.toml"\n', "1:11", "recipe.circular_extends"),
    child("remove_unknown", 'remove = ["losses.info_nec"]', "2:11",
          "recipe.unknown_path", "'losses.info_nec'", "Did you mean 'losses.info_nce'"),
    child("remove_no_array", 'remove = "queue"', "2:10", "recipe.invalid_value"),
    # missing
    whole("empty", "", "1:1", "recipe.missing_key"),
    whole("no_data", 'title = "x"\n', "1:1", "recipe.missing_key"),
    child("no_dataset", 'remove = ["data.dataset"]', "simcse_en.toml", "recipe.missing_key"),
    child("no_model", 'remove = ["encoders.online.model"]', "simcse_en.toml", "recipe.missing_key"),
    child("milestones_without_rates", "[train]\nmilestones = [5]", "3:14", "recipe.conflict"),
    child("milestones_of_linear", "[train]\nmilestones = [5]\nlearning_rates = [1e-5]", "3:1", "recipe.conflict"),
    child("patience_without_metric", 'remove = ["evaluate.metric_for_best_model"]\n[train]\npatience = 2', "4:1",
          "recipe.conflict", "evaluate.metric_for_best_model"),
    child("patience_without_evaluations", "[train]\npatience = 2\nevaluate_every = 0", "3:1",
          "recipe.conflict", "train.evaluate_every"),
    child("milestones_descend",
          '[train]\nschedule = "constant"\nmilestones = [5, 3]\nlearning_rates = [1e-5, 1e-6]', "4:14",
          "recipe.invalid_value"),
    child("dropout_and_chunks", "[views.positive]\ndropout = 0.2\n[train]\nmini_batch_size = 8", "3:1",
          "recipe.conflict"),
    child("joined_template_and_text",
          "[encoders.online]\npooling = 'text'\ntemplate = 'A {text}'\ntemplate_joined = true\n[train]\nsteps = 0",
          "2:11", "recipe.conflict", "template_joined = true", "Remove template_joined"),
    child("mask_without_template", "[encoders.online]\npooling = 'mask'", "2:11", "recipe.conflict", "{mask}"),
    child("joined_template_in_training",
          "[encoders.online]\npooling = 'last'\ntemplate = 'It said {text}'\ntemplate_joined = true", "5:1",
          "recipe.conflict", "only for evaluation"),
    child("layer_of_ditto", "[encoders.online]\nname = 'ditto'\nlayer = 1\npooling = 'mean'", "2:11", "recipe.conflict",
          "layer = 1"),
    child("exponential_to_zero",
          '[losses.info_nce]\nweight_schedule = { end = 0.0, shape = "exponential" }', "3:1", "recipe.conflict"),
    child("betas_of_rmsprop", '[train]\noptimizer = "rmsprop"\nbetas = [0.9, 0.9]', "4:1", "recipe.conflict"),
    child("two_views_for_one_input", '[losses.info_nce]\nviews = { positive = ["anchor", "positive"] }', "3:22",
          "recipe.invalid_value"),
    child("nothing_to_train", 'remove = ["losses", "views"]', "simcse_en.toml", "recipe.no_loss", "steps = 0"),
    child("queue_without_name", '[queue]\nview = "anchor"', "2:2", "recipe.missing_key"),
    child("component_without_name", "[losses.mine]\nweight = 2", "2:9",
          "recipe.unknown_component", "unknown loss 'mine'"),
    # unknown keys
    child("unknown_top_key", "epochs = 3", "2:1", "recipe.unknown_key", "unknown key 'epochs'"),
    child("unknown_section_key", "[train]\nlearning_rat = 1e-5", "3:1",
          "recipe.unknown_key", "of [train]", "Did you mean 'learning_rate'"),
    child("unknown_parameter", "[losses.info_nce]\ntemprature = 0.1", "3:1",
          "recipe.unknown_key", "'temprature' of loss 'info_nce'", "Did you mean 'temperature'"),
    child("parameter_called_params", "[losses.info_nce]\nparams = { temperature = 1.0 }", "3:1",
          "recipe.unknown_key", "unknown parameter 'params'"),
    # wrong types and values
    child("negative", "[train]\nlearning_rate = -3", "3:17",
          "recipe.invalid_value", "should be greater than 0, not -3"),
    child("number_as_text", '[train]\nlearning_rate = "3e-5"', "3:17",
          "recipe.invalid_value", 'should be a number, not the text "3e-5"'),
    child("float_as_count", "[train]\nbatch_size = 64.0", "3:14",
          "recipe.invalid_value", "should be a whole number, not 64.0"),
    child("choice", "[train]\ncompile = 'onn'", "3:11",
          "recipe.invalid_value", "'on' or 'off'", "Did you mean 'on'"),
    child("schedule", "[train]\nschedule = 'linaer'", "3:12", "recipe.unknown_component", "Did you mean 'linear'"),
    child("optimizer_setting", "[train]\noptimizer_settings = { momentum = 0.5 }", "3:24", "recipe.unknown_key",
          "'momentum' of optimizer 'adamw'"),
    child("setting_of_train", "[train]\noptimizer_settings = { epsilon = 1e-6 }", "3:24", "recipe.conflict",
          "set train.epsilon instead"),
    child("parameter_choice", "[encoders.online]\npooling = 'men'", "3:11",
          "recipe.invalid_value", "Did you mean 'mean'"),
    child("not_finite", "[train]\nlearning_rate = inf", "3:17", "recipe.invalid_value"),
    child("date", "title = 2026-01-01", "2:9", "recipe.invalid_value"),
    child("section_is_value", "train = 3", "2:9", "recipe.invalid_value", "should be a table, not 3"),
    child("losses_is_array", "losses = []", "2:10", "recipe.invalid_value"),
    child("component_is_value", "[losses]\nmine = 3", "3:8", "recipe.invalid_value", "should be a table, not 3"),
    child("augment_is_table", "[views.anchor]\naugment = { name = 'fuse_embeddings' }", "3:11", "recipe.invalid_value"),
    child("inline_item", "[views.anchor]\naugment = [{ name = 'fuse_embeddings', model = 'm', rate = 3 }]", "3:60",
          "recipe.invalid_value", "views.anchor.augment.0.rate", "should be at most 1, not 3"),
    child("future_schema", "schema = 2", "2:10", "recipe.invalid_value"),
    child("boolean_as_choice", "[encoders.online]\nfirst_layer_index = true", "3:21",
          "recipe.invalid_value", "should be 1, not true"),
    child("beyond_64_bits", "[train]\nseed = 99999999999999999999", "3:8", "recipe.invalid_value"),
    child("empty_title", "title = ''", "2:9", "recipe.invalid_value"),
    child("fitted_split",
          "[encoders.white]\nname = 'whitening'\nof = 'online'\nfit_on = 'wiki1m'\nsplit = 'trian'\n"
          "[evaluate]\nencoder = 'white'", "6:9",
          "recipe.unknown_split", "no split 'trian'", "Did you mean 'train'"),
    child("bad_name", "[views.'my view']", "2:8", "recipe.invalid_name"),
    child("too_long", "[data]\nmax_length = 200000", "3:14", "recipe.invalid_value", "at most 131072"),
    # names
    child("unknown_component", "[losses.x]\nname = 'info_nec'", "3:8",
          "recipe.unknown_component", "unknown loss 'info_nec'", "Did you mean 'info_nce'"),
    child("unknown_encoder", "[views.anchor]\nencoder = 'onlin'", "3:11",
          "recipe.unknown_encoder", "unknown encoder 'onlin'", "Did you mean 'online'"),
    child("unknown_view", "[losses.info_nce]\nviews = { positive = 'anchr' }", "3:22",
          "recipe.unknown_view", "unknown view 'anchr'", "Did you mean 'anchor'"),
    child("unknown_input", "[losses.info_nce]\nviews = { positiv = 'anchor' }", "3:11",
          "recipe.unknown_input", "no input 'positiv'", "Did you mean 'positive'"),
    child("input_from_queue", "[losses.info_nce]\nviews = { negatives = 'anchor' }", "3:11", "recipe.input_of_queue"),
    child("input_from_column", "[losses.cosent]\nviews = { label = 'anchor' }", "3:11",
          "recipe.input_of_queue", "`column`"),
    child("labels_missing", "[losses.cosent]\ncolumn = 'rating'", "3:10", "recipe.unknown_column", "'rating'"),
    child("wrapped_later", "[losses.m]\nname = 'matryoshka'\nof = 'k'\nwidths = [8]\n[losses.k]\nname = 'info_nce'",
          "4:6", "recipe.wrong_order", "[losses.k]"),
    child("wrapped_weight", "[losses.info_nce]\nweight = 2.0\n[losses.matryoshka]\nof = 'info_nce'\nwidths = [8]",
          "3:1", "recipe.conflict", "'matryoshka'"),
    child("wrapper_queue", "[losses.matryoshka]\nof = 'info_nce'\nwidths = [8]\nqueue = false", "5:1",
          "recipe.conflict", "'info_nce'"),
    child("wrapped_encoder", "[losses.stay_near]\n[losses.matryoshka]\nof = 'stay_near'\nwidths = [8]", "4:6",
          "recipe.conflict", "'stay_near'"),
    child("wrapped_tokens", "[losses.jensen_shannon_information]\n[losses.adaptive_layers]\n"
          "of = 'jensen_shannon_information'", "4:6", "recipe.conflict", "'jensen_shannon_information'"),
    child("default_view_missing", "[losses.twins]", "2:9", "recipe.missing_view"),
    child("queue_view", "[queue]\nname = 'fifo'\nview = 'ancor'", "4:8",
          "recipe.unknown_view", "Did you mean 'anchor'"),
    child("unused_view", "[views.extra]", "2:8", "recipe.unused_view"),
    child("unused_encoder", "[encoders.two]\nname = 'transformer'\nmodel = 'm'", "2:11", "recipe.unused_encoder"),
    child("unread_queue", "[queue]\nname = 'fifo'\nview = 'anchor'\n[losses.info_nce]\nqueue = false", "2:2",
          "recipe.unused_queue"),
    child("unknown_dataset", "[data]\ndataset = 'wiki1n'", "3:11",
          "recipe.unknown_dataset", "unknown dataset 'wiki1n'", "Did you mean 'wiki1m'"),
    child("unknown_split", "[data]\nsplit = 'tran'", "3:9",
          "recipe.unknown_split", "no split 'tran'", "Did you mean 'train'"),
    child("unknown_column", "[views.anchor]\ncolumn = 'txt'", "3:10",
          "recipe.unknown_column", "no column 'txt'", "Did you mean 'text'"),
    child("dataset_and_file", "[data]\nfile = 'a.txt'", "3:1", "recipe.conflict", "either 'dataset' or 'file'"),
    child("evaluator_datasets", "[evaluators.x]\nname = 'sts_average'\ndatasets = ['sickr', 'stsbb']", "4:22",
          "recipe.unknown_dataset", "Did you mean 'stsb'"),
    child("evaluator_split", "[evaluators.stsb]\nsplit = 'tset'", "3:9", "recipe.unknown_split", "Did you mean 'test'"),
    child("scored_view", "[evaluate]\nview = 'anchr'", "3:8",
          "recipe.unknown_view", "unknown view 'anchr'", "Did you mean 'anchor'"),
    child("scored_view_of_another",
          "[views.other]\nencoder = 'slow'\n[encoders.slow]\nname = 'ema'\n" "[evaluate]\nview = 'other'", "7:8",
          "recipe.conflict"),
    child("scored_encoder", "[evaluate]\nencoder = 'onlne'", "3:11", "recipe.unknown_encoder", "Did you mean 'online'"),
    child("select_unknown", "[evaluate]\nmetric_for_best_model = 'stsb_dve.spearman'", "3:25",
          "recipe.unknown_evaluator", "Did you mean 'stsb_dev'"),
    child("select_metric", "[evaluate]\nmetric_for_best_model = 'stsb_dev.spearmen'", "3:25",
          "recipe.unknown_metric", "Did you mean 'stsb_dev.spearman'"),
    child("select_test", "[evaluate]\nmetric_for_best_model = 'stsb.spearman'", "3:25",
          "recipe.test_selection", "split 'test'"),
    child("unknown_paper", "[paper]\nkey = 'ifcll'", "3:7",
          "recipe.unknown_paper", "unknown paper 'ifcll'", "Did you mean 'ifcl'"),
    child("unknown_paper_table", "[paper]\ntable = 'sts_e'", "3:9", "recipe.unknown_table", "Did you mean 'sts_en'"),
    child("unknown_paper_row", "[paper]\nrow = 'SimCSE-BERT bse'", "3:7",
          "recipe.unknown_row", "Did you mean 'SimCSE-BERT base'"),
    child("tune_path", "[tune.t]\npaths = ['losses.info_nce.temperatur']", "3:10",
          "recipe.unknown_path", "Did you mean 'losses.info_nce.temperature'"),
    child("tune_range", "[tune.t]\npaths = ['train.seed']\nlow = 3\nhigh = 2", "5:8", "recipe.invalid_value"),
]  # fmt: skip
