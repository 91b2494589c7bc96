"""Recipes that are wrong, each in its own way: name, text, and what the first message must say of it.

Where a text does not say otherwise it extends `simcse_en`; its own lines start at line 2.
"""

from __future__ import annotations

from typing import NamedTuple


class Broken(NamedTuple):
    name: str
    text: str
    place: str
    says: tuple[str, ...]


def child(name: str, text: str, place: str, *says: str) -> Broken:
    return Broken(name, f'extends = "simcse_en"\n{text}', place, says)


def whole(name: str, text: str, place: str, *says: str) -> Broken:
    return Broken(name, text, place, says)


BROKEN = [
    # not TOML
    whole("syntax", "title = \n", "1:9", "not TOML", "invalid value"),
    whole("unclosed_string", 'title = "a\n', "1:11", "not TOML"),
    whole("unclosed_table", "[train\nseed = 1\n", "1:7", "not TOML"),
    whole("duplicate_key", "[train]\nseed = 1\nseed = 2\n", "3:9", "not TOML", "overwrite"),
    whole("duplicate_table", "[train]\n[train]\n", "2:7", "not TOML", "twice"),
    whole("nested_too_deep", f"a = {'[' * 5000}", "1:1", "nested too deeply"),
    # extends, remove
    whole("unknown_parent", 'extends = "simcse_enn"\n', "1:11", "unknown recipe 'simcse_enn'",
          "Did you mean 'simcse_en'"),
    whole("missing_parent_file", 'extends = "no.toml"\n', "1:11", "no such file"),
    whole("parent_no_text", "extends = 3\n", "1:11", "name or the path of one recipe"),
    whole("extends_itself", 'extends = "broken.toml"\n', "1:11", "circle"),
    child("remove_unknown", 'remove = ["losses.info_nec"]', "2:11", "'losses.info_nec'",
          "Did you mean 'losses.info_nce'"),
    child("remove_no_array", 'remove = "queue"', "2:10", "should be an array"),
    # missing
    whole("empty", "", "1:1", "needs 'title'"),
    whole("no_data", 'title = "x"\n', "1:1", "needs a table [data]"),
    child("no_dataset", 'remove = ["data.dataset"]', "simcse_en.toml", "needs 'dataset'"),
    child("no_model", 'remove = ["encoders.online.model"]', "simcse_en.toml", "encoder 'transformer' needs 'model'"),
    child("milestones_without_rates", "[train]\nmilestones = [5]", "3:14", "each milestone takes one rate"),
    child("rates_without_milestones", "[train]\nrates = [1e-5]", "3:9", "0 milestones and 1 rates"),
    child("milestones_of_linear", "[train]\nmilestones = [5]\nrates = [1e-5]", "3:1", 'for schedule = "constant"'),
    child("milestones_descend", '[train]\nschedule = "constant"\nmilestones = [5, 3]\nrates = [1e-5, 1e-6]', "4:14",
          "should ascend"),
    child("dropout_and_chunks", "[views.positive]\ndropout = 0.2\n[train]\nrows_at_once = 8", "3:1", "rows_at_once"),
    child("betas_of_rmsprop", '[train]\noptimizer = "rmsprop"\nbetas = [0.9, 0.9]', "4:1", "are of adamw and adam"),
    child("bias_correction_of_sgd", '[train]\noptimizer = "sgd"\nbias_correction = false', "4:1", "a choice of adamw"),
    child("epsilon_of_sgd", '[train]\noptimizer = "sgd"\nepsilon = 1e-6', "4:1", "sgd divides by nothing"),
    child("two_views_for_one_input", '[losses.info_nce]\nviews = { positive = ["anchor", "positive"] }', "3:22",
          "takes one view"),
    child("nothing_to_train", 'remove = ["losses", "views"]', "simcse_en.toml", "nothing to train", "steps = 0"),
    child("queue_without_name", '[queue]\nview = "anchor"', "2:2", "needs a `name`"),
    child("component_without_name", "[losses.mine]\nweight = 2", "2:9", "unknown loss 'mine'", "needs a `name`"),
    # unknown keys
    child("unknown_top_key", "epochs = 3", "2:1", "unknown key 'epochs'"),
    child("unknown_table", "[trian]\nseed = 1", "2:2", "unknown key 'trian'", "Did you mean 'train'"),
    child("unknown_section_key", "[train]\nlearning_rat = 1e-5", "3:1", "of [train]", "Did you mean 'learning_rate'"),
    child("unknown_parameter", "[losses.info_nce]\ntemprature = 0.1", "3:1", "'temprature' of loss 'info_nce'",
          "Did you mean 'temperature'"),
    child("unknown_view_key", "[views.anchor]\nencodr = 'online'", "3:1", "Did you mean 'encoder'"),
    child("parameter_called_params", "[losses.info_nce]\nparams = { temperature = 1.0 }", "3:1",
          "unknown parameter 'params'"),
    # wrong types and values
    child("negative", "[train]\nlearning_rate = -3", "3:17", "should be greater than 0, not -3"),
    child("number_as_text", '[train]\nlearning_rate = "3e-5"', "3:17", 'should be a number, not the text "3e-5"'),
    child("boolean_as_number", "[train]\nseed = true", "3:8", "should be a whole number, not true"),
    child("float_as_count", "[train]\nbatch_size = 64.0", "3:14", "should be a whole number, not 64.0"),
    child("parameter_as_text", '[losses.info_nce]\ntemperature = "0.1"', "3:15", "should be a number"),
    child("parameter_as_boolean", "[losses.info_nce]\ntemperature = true", "3:15", "should be a number, not true"),
    child("weight_as_boolean", "[losses.info_nce]\nweight = true", "3:10", "should be a number, not true"),
    child("choice", "[train]\nschedule = 'linaer'", "3:12", "'linear' or 'constant'", "Did you mean 'linear'"),
    child("parameter_choice", "[encoders.online]\npooling = 'men'", "3:11", "Did you mean 'mean'"),
    child("not_finite", "[train]\nlearning_rate = inf", "3:17", "inf is not a value a recipe can have"),
    child("date", "title = 2026-01-01", "2:9", "2026-01-01 is not a value"),
    child("section_is_value", "train = 3", "2:9", "should be a table, not 3"),
    child("losses_is_array", "losses = []", "2:10", "should be a table of tables"),
    child("component_is_value", "[losses]\nmine = 3", "3:8", "should be a table, not 3"),
    child("augment_is_table", "[views.anchor]\naugment = { name = 'fuse_embeddings' }", "3:11", "should be an array"),
    child("inline_item", "[views.anchor]\naugment = [{ name = 'fuse_embeddings', model = 'm', rate = 3 }]", "3:60",
          "views.anchor.augment.0.rate", "should be at most 1, not 3"),
    child("future_schema", "schema = 2", "2:10", "should be 1, not 2"),
    child("schema_as_boolean", "schema = true", "2:10", "should be 1, not true"),
    child("boolean_as_choice", "[encoders.online]\nfirst_layer_index = true", "3:21", "should be 1, not true"),
    child("beyond_64_bits", "[train]\nseed = 99999999999999999999", "3:8", "is not a value a recipe can have"),
    child("empty_title", "title = ''", "2:9", "should be text that is not empty"),
    child("no_language", "language = ''", "2:12", "should be text that is not empty"),
    child("level_of_nothing", "[evaluators.stsb]\nlevel = 0.01", "3:9", "should be at least 0.5"),
    child("resamples", "[evaluators.stsb]\nbootstrap = 1_000_000_000", "3:13", "should be at most 100000"),
    child("fitted_split", "[encoders.white]\nname = 'whitening'\nof = 'online'\nfit_on = 'wiki1m'\nsplit = 'trian'\n"
          "[evaluate]\nencoder = 'white'", "6:9", "no split 'trian'", "Did you mean 'train'"),
    child("empty_file", "[data]\nfile = ''", "3:8", "should be text that is not empty"),
    child("bad_name", "[views.'my view']", "2:8", "starts with a letter"),
    child("too_long", "[data]\nmax_length = 4096", "3:14", "should be at most 512, not 4096"),
    # names
    child("unknown_component", "[losses.x]\nname = 'info_nec'", "3:8", "unknown loss 'info_nec'",
          "Did you mean 'info_nce'"),
    child("unknown_encoder", "[views.anchor]\nencoder = 'onlin'", "3:11", "unknown encoder 'onlin'",
          "Did you mean 'online'"),
    child("unknown_view", "[losses.info_nce]\nviews = { positive = 'anchr' }", "3:22", "unknown view 'anchr'",
          "Did you mean 'anchor'"),
    child("unknown_input", "[losses.info_nce]\nviews = { positiv = 'anchor' }", "3:11", "no input 'positiv'",
          "Did you mean 'positive'"),
    child("input_from_queue", "[losses.info_nce]\nviews = { negatives = 'anchor' }", "3:11", "filled by the queue"),
    child("default_view_missing", "[losses.twins]", "2:9", "needs a view for 'identical'", "Declare [views.identical]"),
    child("queue_view", "[queue]\nname = 'fifo'\nview = 'ancor'", "4:8", "Did you mean 'anchor'"),
    child("unused_view", "[views.extra]", "2:8", "no loss, queue or augmenter uses this view"),
    child("unused_encoder", "[encoders.two]\nname = 'transformer'\nmodel = 'm'", "2:11", "no view goes through"),
    child("unread_queue", "[queue]\nname = 'fifo'\nview = 'anchor'\n[losses.info_nce]\nqueue = false", "2:2",
          "no loss reads the queue"),
    child("unknown_dataset", "[data]\ndataset = 'wiki1n'", "3:11", "unknown dataset 'wiki1n'", "Did you mean 'wiki1m'"),
    child("unknown_split", "[data]\nsplit = 'tran'", "3:9", "no split 'tran'", "Did you mean 'train'"),
    child("unknown_column", "[views.anchor]\ncolumn = 'txt'", "3:10", "no column 'txt'", "Did you mean 'text'"),
    child("dataset_and_file", "[data]\nfile = 'a.txt'", "3:1", "either 'dataset' or 'file'"),
    child("evaluator_dataset", "[evaluators.x]\nname = 'sts'\ndataset = 'stsbb'", "4:11", "Did you mean 'stsb'"),
    child("evaluator_datasets", "[evaluators.x]\nname = 'sts_average'\ndatasets = ['sickr', 'stsbb']", "4:22",
          "Did you mean 'stsb'"),
    child("evaluator_datasets_split", "[evaluators.x]\nname = 'sts_average'\ndatasets = ['stsb']\nsplit = 'devv'",
          "5:9", "Did you mean 'dev'"),
    child("average_test_selects", "[evaluate]\nselect = 'x.spearman'\n[evaluators.x]\nname = 'sts_average'\n"
          "datasets = ['stsb']", "3:10", "choosing a state by test data"),
    child("evaluator_split", "[evaluators.stsb]\nsplit = 'tset'", "3:9", "Did you mean 'test'"),
    child("scored_view", "[evaluate]\nview = 'anchr'", "3:8", "unknown view 'anchr'", "Did you mean 'anchor'"),
    child("scored_view_of_another", "[views.other]\nencoder = 'slow'\n[encoders.slow]\nname = 'ema'\n"
          "[evaluate]\nview = 'other'", "7:8", "goes through encoder 'slow', and 'online' is scored"),
    child("scored_encoder", "[evaluate]\nencoder = 'onlne'", "3:11", "Did you mean 'online'"),
    child("select_unknown", "[evaluate]\nselect = 'stsb_dve.spearman'", "3:10", "Did you mean 'stsb_dev'"),
    child("select_metric", "[evaluate]\nselect = 'stsb_dev.spearmen'", "3:10", "Did you mean 'stsb_dev.spearman'"),
    child("select_without_metric", "[evaluate]\nselect = 'stsb_dev'", "3:10", "no metric ''", "stsb_dev.spearman"),
    child("select_test", "[evaluate]\nselect = 'stsb.spearman'", "3:10", "split 'test'", "allow_test_selection"),
    child("unknown_paper", "[paper]\nkey = 'ifcll'", "3:7", "unknown paper 'ifcll'", "Did you mean 'ifcl'"),
    child("unknown_paper_table", "[paper]\ntable = 'sts_e'", "3:9", "Did you mean 'sts_en'"),
    child("unknown_paper_row", "[paper]\nrow = 'SimCSE-BERT bse'", "3:7", "Did you mean 'SimCSE-BERT base'"),
    child("tune_path", "[tune.t]\npaths = ['losses.info_nce.temperatur']", "3:10",
          "Did you mean 'losses.info_nce.temperature'"),
    child("tune_range", "[tune.t]\npaths = ['train.seed']\nlow = 3\nhigh = 2", "5:8", "should be greater than low"),
]  # fmt: skip
