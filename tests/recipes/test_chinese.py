"""IFCL's Chinese side: every recipe scores both tasks of Table 3, and each of its rows has a recipe."""

import pytest

from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.load import load

NAMES = [name for name in all_recipes() if "zh" in name.split("_")]
TRAINED = {"simcse_zh": "wiki_zh", "simcse_zh_cstsb": "cstsb_text"}


@pytest.mark.parametrize("name", [name for name in NAMES if "augmentation" not in name])
def test_both_tasks_are_scored(name):
    assert load(name).recipe.language == "zh"
    evaluators = load(name).recipe.evaluators
    for label, dataset, split in (("cstsb", "cstsb", "test"), ("simclue", "simclue", "test")):
        assert evaluators[label].name == "sts"
        assert (evaluators[label].params["dataset"], evaluators[label].params["split"]) == (dataset, split)
    if load(name).recipe.train.steps != 0:
        assert load(name).recipe.evaluate.metric_for_best_model == "cstsb_dev.spearman"
        assert evaluators["cstsb_dev"].params["split"] == "dev"


def test_simcse_in_chinese_is_simcse_but_for_model_and_text():
    english, chinese = (load(name).recipe for name in ("simcse_en", "simcse_zh"))
    assert chinese.train == english.train
    assert chinese.losses == english.losses
    assert dict(chinese.encoders["online"].params) == {
        **dict(english.encoders["online"].params), "model": "bert-base-chinese",
    }  # fmt: skip
    for name, dataset in TRAINED.items():
        assert (load(name).recipe.data.dataset, load(name).recipe.data.max_length) == ((dataset,), 64)


def test_the_twins_of_figure_4a_have_the_rates_of_table_6_on_the_sentences_scored():
    for language, dropout, fusion in (("en", 0.15, 0.9), ("zh", 0.2, 0.3)):
        views = load(f"augmentation_quality_{language}").recipe.views
        trained = load(f"ifcl_{language}").recipe
        fused, dropped = views["fraternal"].augment
        for part in (*views["identical"].augment, dropped):
            assert (part.name, part.params["rate"], part.params["draw"]) == ("embedding_dropout", dropout, "chance")
            assert part.params["scale"]
        assert fused.params["rate"] == fusion
        assert fused == trained.views["fraternal"].augment[0]
        assert dropout == trained.encoders["online"].params["dropout"]
    from registry.resources import catalog

    for name in ("stsb", "cstsb"):
        generator = catalog.entry(f"{name}_test_text").generator
        assert generator is not None
        assert generator.sources == ((name, "test"),)
