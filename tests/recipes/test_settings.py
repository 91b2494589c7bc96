"""Recipes have the settings of the authors' papers, scripts and code, copied by hand."""

from collections.abc import Mapping

import pytest

from cse_cli.recipe.load import load

BASE, LARGE, ROBERTA, ROBERTA_LARGE = ENCODERS = (
    "bert-base-uncased", "bert-large-uncased", "roberta-base", "roberta-large",
)  # fmt: skip
UNSUP = "princeton-nlp/unsup-simcse-"
MASKS = {"name": "mask_tokens", "rate": 0.15, "mask_share": 0.8, "random_share": 0.1}
PROMPT = 'This sentence of "{text}" means {mask}.', 'This sentence : "{text}" means {mask}.'
ROBERTA_PROMPT = "This sentence : ' {text} ' means {mask}.", "The sentence : ' {text} ' means {mask}."
DIFFCSE = "voidism/diffcse-bert-base-uncased-sts", f"{UNSUP}bert-large-uncased"
ROBERTA_DIFFCSE = "voidism/diffcse-roberta-base-sts", f"{UNSUP}roberta-large"


def four(name):
    """Return the recipes of a method for the four encoders."""
    return name, f"{name}_large", f"{name}_roberta", f"{name}_roberta_large"


def versions(name, *rows):
    """Return recipe → its row, for the four encoders."""
    return dict(zip(four(name), rows, strict=True))


SYNCSE = [f"syncse_{part}_en_roberta{size}" for part in ("partial", "scratch") for size in ("", "_large")]
RATE = ["train.learning_rate"]
BATCH_AND_RATE = ["train.batch_size", "train.learning_rate"]
VARIED = [
    (RATE, {"arccse_en": [3e-5], "arccse_en_large": [1e-5]}),
    (
        [
            "train.learning_rate",
            "views.hard.augment.0.neighbors",
            *(f"views.positive.augment.0.{key}" for key in ("rate", "draw")),
        ],
        {"cards_en_roberta": [4e-5, 64, 0.05, "chance"], "cards_en_roberta_large": [7.5e-6, 8, 0.1, "count"]},
    ),
    (
        ["train.epochs", "train.evaluate_every", "encoders.online.dropout"],
        {"consert_en": [10, 200, 0.0], "consert_en_large": [25, 100, None]},
    ),
    (
        [*BATCH_AND_RATE, "losses.group_distillation.group", "encoders.online.model", "encoders.teacher.model"],
        {
            "distillcse_en": [64, 3e-5, 0.1, BASE, UNSUP + BASE],
            **versions(
                "distillcse_plain_en",
                [64, 3e-5, 0.0, BASE, UNSUP + BASE],
                [64, 1e-5, 0.0, LARGE, UNSUP + LARGE],
                [512, 1e-5, 0.0, ROBERTA, UNSUP + ROBERTA],
                [512, 3e-5, 0.0, ROBERTA_LARGE, UNSUP + ROBERTA_LARGE],
            ),
        },
    ),
    (
        ["train.learning_rate", "views.positive.augment.0.rate", "queue.length", "encoders.online.dropout"],
        versions(
            "esimcse_en",
            [3e-5, 0.32, 160, None],
            [1e-5, 0.32, 160, None],
            [1e-5, 0.3, 160, None],
            [1e-5, 0.28, 128, 0.15],
        ),
    ),
    (  # Table 1, and the temperatures of Table 4 that Tables 3 and 5 find again (F1)
        [*BATCH_AND_RATE, "losses.focal_info_nce.temperature"],
        versions("focal_infonce_en", [64, 3e-5, 0.07], [64, 1e-5, 0.07], [512, 1e-5, 0.05], [512, 3e-5, 0.05]),
    ),
    (  # `run.sh` at e2c3430
        [
            *BATCH_AND_RATE,
            "train.epochs",
            "losses.info_nce.false_negative",
            "queue.times",
            "encoders.online.model",
            "encoders.complementary.model",
        ],
        versions(
            "dclr_en",
            [128, 3e-5, 3, 0.9, 1.0, BASE, UNSUP + BASE],
            [256, 3e-5, 1, 0.9, 3.0, UNSUP + LARGE, UNSUP + BASE],
            [128, 3e-5, 3, 0.85, 2.5, ROBERTA, UNSUP + ROBERTA],
            [256, 1e-5, 1, 0.85, 5.0, UNSUP + ROBERTA_LARGE, UNSUP + ROBERTA],
        ),
    ),
    (
        [*BATCH_AND_RATE, "encoders.online.dropout"],
        versions("gs_infonce_en", [64, 3e-5, 0.2], [64, 1e-5, 0.2], [64, 1e-5, None], [128, 2e-5, None]),
    ),
    (
        ["losses.side_language_model.masking", "losses.side_language_model.frozen_dropout"],
        {"infocse_en": [0.40, False], "infocse_en_large": [0.30, True]},
    ),
    (RATE, {"informin_cl_en": [5e-5], "informin_cl_en_roberta": [5e-5], "informin_cl_en_roberta_large": [3e-5]}),
    (  # `run_unsup_*.sh`
        [*BATCH_AND_RATE, "train.precision"],
        versions("is_cse_en", [64, 3e-5, "fp32"], [64, 1e-5, "auto"], [512, 1e-5, "fp32"], [512, 3e-5, "auto"]),
    ),
    (
        [*BATCH_AND_RATE, "data.max_length"],
        {"llm2vec_mntp_en": [32, 5e-5, 512], "llm2vec_simcse_en": [128, 3e-5, 128]},
    ),
    (
        ["encoders.online.dropout", "encoders.online.drophead"],
        {"mirror_bert_en": [0.1, None], "mirror_bert_drophead_en": [0.0, 0.2]},
    ),
    (RATE, {"mixcse_en": [3e-5], "mixcse_en_large": [1e-5]}),
    (["encoders.online.model", "encoders.peer.model"], versions("pcl_en", *([model] * 2 for model in ENCODERS))),
    (  # the README and `run_unsup_example.sh`
        ["encoders.online.length", *BATCH_AND_RATE, "losses.masked_language_modeling.weight"],
        versions("promcse_en", [16, 256, 3e-2, None], [10, 256, 3e-2, None], [14, 64, 3e-2, 0.1], [10, 64, 1e-2, 0.1]),
    ),
    (  # `run.sh`, and issue 3 for BERT large
        ["encoders.online.template", "views.positive.template", "train.learning_rate"],
        versions("promptbert_en", [*PROMPT, 1e-5], [*PROMPT, 3e-5], [*ROBERTA_PROMPT, 1e-5], [*ROBERTA_PROMPT, 1e-5]),
    ),
    *(
        (
            ["train.learning_rate", "encoders.first_teacher.model", "encoders.second_teacher.model"],
            versions(
                f"rankcse_{form}_en",
                [3e-5, *DIFFCSE],
                [1e-5, *DIFFCSE],
                [1e-5, *ROBERTA_DIFFCSE],
                [3e-5, *ROBERTA_DIFFCSE],
            ),
        )
        for form in ("list_net", "list_mle")
    ),
    (BATCH_AND_RATE, versions("simcse_en", [64, 3e-5], [64, 1e-5], [512, 1e-5], [512, 3e-5])),
    (RATE, {"simcse_pp_en": [3e-5], "simcse_pp_en_roberta": [1e-5]}),
    (  # `train_SNCSE.sh` and `models.py`
        [*BATCH_AND_RATE, "losses.bidirectional_margin.weight"],
        versions("sncse_en", [256, 1e-5, 1e-3], [128, 5e-6, 1e-3], [256, 1e-5, 5e-4], [128, 5e-6, 5e-4]),
    ),
    (RATE, versions("sup_simcse_en", [5e-5], [1e-5], [5e-5], [1e-5])),
    (
        ["train.learning_rate", "views.contradiction.column"],
        dict(
            zip(SYNCSE, [[5e-5, "hard_neg"], [1e-5, "hard_neg"], [5e-5, "nli_hard"], [1e-5, "nli_hard"]], strict=True)
        ),
    ),
    (
        ["train.batch_size", "encoders.first.dropout", "encoders.second.dropout"],
        {"tncse_en": [64, 0.00025, 0.00025], "tncse_en_roberta": [256, 0.0175, 0.0175]},
    ),
    (["encoders.online.model"], {"whitenedcse_en": [BASE], "whitenedcse_en_large": [LARGE]}),
]
"""Paths of the settings in which the recipes of a method differ, and recipe → their values."""
SAME = {
    "arccse_en arccse_en_large": [
        ("train", {"batch_size": 64, "epochs": 1, "evaluate_every": 125}),
        ("losses.info_nce", {"temperature": 0.05, "angular_margin": 10.0}),
        ("losses.ordering", {"weight": 0.1, "margin": 0.0, "by": "cosine"}),
        ("views", {"near.augment.0.rate": 0.2, "far.augment.0.rate": 0.4}),
    ],
    "bsl_en": [  # `unsupervised_tuning.py` and `BYOLoss.py`
        ("train", {"batch_size": 64, "learning_rate": 1e-4, "epochs": 1, "schedule": "linear", "epsilon": 1e-6}),
        ("train", {"weight_decay": 0.0, "clip_norm": 1.0}),
        ("", {"data.max_length": 64, "evaluate.max_length": 64}),
        ("encoders.online.heads.predictor", {"blocks": 3, "expansion": 10, "together": [], "sync": True}),
        ("encoders.target", {"decay": 0.999, "schedule": "constant", "share": [], "without": ["predictor"]}),
    ],
    "cards_en_roberta cards_en_roberta_large": [  # the README; of the retrieved sentences one is the sentence itself
        ("", {"train.batch_size": 512, "data.max_length": 32, "data.dataset": ["wiki1m"]}),
        ("views.hard.augment.0", {"max_length": 32, "skip": 0, "dataset": "wiki1m", "pooling": "mean"}),
        ("losses.info_nce", {"temperature": 0.05, "hard_weight": 0.0}),
    ],
    "consert_en consert_en_large": [  # unsup-consert-base.sh and unsup-consert-large.sh
        ("train", {"batch_size": 96, "learning_rate": 5e-7, "seed": 1, "patience": 10, "weight_decay": 0.01}),
        ("train", {"epsilon": 1e-6, "bias_correction": False}),
        ("losses.nt_xent", {"temperature": 0.1, "weight": 0.15}),
        ("", {"data.max_length": 67, "evaluate.max_length": 67}),
    ],
    "ct_en": [  # `Training.py` and `ContrastiveTensionModel.py`
        ("train", {"batch_size": 16, "optimizer": "rmsprop", "learning_rate": 1e-5, "clip_norm": 0}),
        ("train", {"milestones": [501, 1001, 1501, 2001], "learning_rates": [8e-6, 6e-6, 4e-6, 2e-6]}),
        ("losses.dot_classification", {"negatives": 7, "pairs": "separate", "reduction": "mean"}),
        ("", {"encoders": ["first", "second"], "evaluate.encoder": "first"}),
        ("", {"data.max_length": 75, "encoders.first.dropout": 0.0, "encoders.second.dropout": 0.0}),
    ],
    "declutr_en_roberta": [  # declutr_base.jsonnet
        ("train", {"batch_size": 4, "learning_rate": 5e-5, "weight_decay": 0.1, "clip_norm": 1.0, "epsilon": 1e-6}),
        ("train", {"bias_correction": False, "epochs": 1, "seed": 42}),
        ("views.near_2_too.augment.0", {"anchor": 1, "positive": 1, "anchors": 2, "positives": 2}),
        ("views.near_2_too.augment.0", {"shortest": 32, "longest": 512}),
        ("losses", {"masked_language_modeling.weight": 1.0}),
        ("losses.nt_xent_means", {"weight": 1.0, "temperature": 0.05, "reduction": "mean"}),
        ("encoders.online", {"model": ROBERTA}),
    ],
    "denosent_en": [  # `model.py` and the README
        ("encoders.online", {"template": '"{text}" means {mask}.', "pooling": "mask"}),
        ("encoders.online.heads.pooler", {"activation": "none", "initial": "random"}),
        ("train", {"learning_rate": 4e-5, "schedule": "constant", "warmup_steps": 500, "batch_size": 64}),
        ("train", {"steps": 5000, "evaluate_every": 50}),
        ("", {"data.max_length": 32, "evaluate.max_length": 32, "evaluate.metric_for_best_model": "avg_dev.spearman"}),
        ("losses.info_nce", {"weight": 5.0, "temperature": 0.05}),
        ("losses.denoising", {"weight": 7.0, "layers": 16, "attention_heads": 1, "noise": 0.825, "places": "all"}),
    ],
    "distillcse_en distillcse_plain_en distillcse_plain_en_large distillcse_plain_en_roberta "
    "distillcse_plain_en_roberta_large": [
        ("", {"train.steps": 5000, "train.evaluate_every": 125, "losses.info_nce.weight": 1.0}),
        ("losses.group_distillation", {"weight": 1.0, "temperature": 0.025, "teacher_temperature": 0.0125}),
        ("losses.group_distillation", {"group_temperature": 1.0, "views.teachers": ["teacher"]}),
        ("encoders.teacher", {"pooling": "cls", "dropout": 0.0, "heads": None}),
    ],
    " ".join(four("esimcse_en")): [
        ("", {"train.batch_size": 64, "train.evaluate_every": 125, "data.max_length": 32}),
        ("losses.info_nce", {"temperature": 0.05}),
        ("encoders.momentum", {"decay": 0.995}),
        ("views", {"anchor.augment": [], "queued.augment": []}),
    ],
    " ".join(four("focal_infonce_en")): [
        ("losses.focal_info_nce", {"margin": 0.3, "reduction": "mean", "clamp": False, "in_batch": True}),
        ("", {"losses": ["focal_info_nce"]}),
    ],
    " ".join(four("dclr_en")): [
        ("", {"queue.steps": 4, "queue.rate": 1e-3, "evaluators.avg_dev.datasets": ["stsb", "sickr"]}),
        ("losses.info_nce", {"temperature": 0.05, "views.reference": "reference"}),
    ],
    "gcse_en": [
        ("train", {"batch_size": 128, "learning_rate": 1e-5, "epochs": 2, "evaluate_every": 125, "clip_norm": 0.0}),
        ("", {"train.optimizer": "adam", "train.warmup_steps": 190, "data.max_length": 64}),
        ("losses.gaussian_info_nce", {"temperature": 0.05, "width": 0.17}),
        ("encoders.online", {"model": UNSUP + BASE, "head_at_eval": False}),
        ("encoders.scorer", {"model": UNSUP + BASE, "dropout": 0.0}),
        ("views.anchor", {"column": "text", "augment.0.rate": 0.05, "augment.0.unit": "word"}),
        ("views", {"positive.column": "sent1", "hard.column": "hard_neg"}),
        ("views", {"reference.column": "text", "reference_hard.column": "hard_neg"}),
    ],
    " ".join(four("gs_infonce_en")): [
        ("", {"train.epochs": 1, "train.evaluate_every": 125, "data.max_length": 32}),
        ("queue", {"count": 192, "steps": 0}),
        ("losses.info_nce", {"temperature": 0.05}),
    ],
    "infocse_en infocse_en_large": [
        ("train", {"learning_rate": 7e-6, "batch_size": 64, "epochs": 2, "evaluate_every": 125}),
        ("losses.side_language_model", {"weight": 1e-5, "frozen_layers": 6, "trained_layers": 2}),
        ("encoders.online.heads.batch_norm_relu", {"together": "all"}),
    ],
    "informin_cl_en informin_cl_en_roberta informin_cl_en_roberta_large": [
        ("train", {"batch_size": 128, "epochs": 1, "evaluate_every": 125}),
        ("losses.alignment", {"weight": 2.0, "power": 2.0, "over": "dimensions"}),
        ("", {"losses.info_nce.temperature": 0.05, "encoders.online.heads": None}),
    ],
    "informin_cl_en": [  # the defaults of train.py (IM6), and both copies of the batch are masked in place (IM7)
        ("losses.masked_language_modeling", {"weight": 0.1, "initial": "checkpoint", "tied": False}),
        ("losses.masked_language_modeling.views", {"masked": "anchor", "masked_again": ["positive"]}),
        ("views.anchor.augment.0", MASKS),
        ("views.positive.augment.0", MASKS),
    ],
    "is_bert_en": [  # unsupervised_training_nli.py and the defaults of `fit`; 275,601 sentences, a tenth of the steps
        ("train", {"batch_size": 32, "learning_rate": 2e-6, "epsilon": 1e-7, "bias_correction": False, "epochs": 1}),
        ("train", {"weight_decay": 0.01, "clip_norm": 1.0, "evaluate_every": 1000, "warmup_steps": 862}),
        ("encoders.online", {"windows": [1, 3, 5], "channels": 256, "pooling": "mean", "activation": "none"}),
        ("", {"data.dataset": ["nli"], "data.max_length": 128 + 3, "evaluate.max_length": 128 + 3}),
    ],
    " ".join(four("is_cse_en")): [  # the numbers in `models.py`
        ("", {"train.epochs": 1, "train.evaluate_every": 125, "data.max_length": 32, "queue.length": 1024}),
        ("losses.smoothed_info_nce", {"temperature": 0.05, "neighbors": 16, "attention_temperature": 2.0}),
        ("losses", {"smoothed_info_nce.buffer": 1024, "info_nce.queue": False}),
    ],
    "llm2vec_mntp_en llm2vec_simcse_en": [
        ("train", {"steps": 1000, "schedule": "constant", "precision": "bf16", "clip_norm": 1}),
        ("encoders.online", {"lora_rank": 16, "lora_alpha": 32, "lora_dropout": 0.05}),
        ("evaluate", {"metric_for_best_model": None}),
    ],
    "micse_en": [
        ("train", {"batch_size": 64, "learning_rate": 1e-5, "epochs": 1, "precision": "fp32"}),
        ("losses.info_nce", {"weight": 1, "temperature": 0.05}),
        ("losses.attention_information", {"weight": 5e-4, "layers": [[7, 9], [8, 10]], "samples": 150}),
    ],
    "mirror_bert_en mirror_bert_drophead_en": [  # mirror_sentence_bert*.sh and the defaults of train.py
        ("train", {"steps": 50, "batch_size": 200, "learning_rate": 2e-5, "weight_decay": 0.01, "clip_norm": 0}),
        ("train", {"schedule": "constant", "warmup_steps": 0, "evaluate_every": 0}),
        ("encoders.online", {"pooling": "mean", "positions": 50, "eval_positions": 64}),
        ("", {"data.max_length": 50, "evaluate.max_length": 64, "views.anchor.augment": []}),
        ("losses.nt_xent", {"temperature": 0.04, "reduction": "mean"}),
    ],
    "mixcse_en mixcse_en_large": [
        ("train", {"batch_size": 64, "epochs": 1, "evaluate_every": 125}),
        (
            "losses.mixed_info_nce",
            {"temperature": 0.05, "share": 0.2, "mixtures": "all", "off": "zero", "normalize": False},
        ),
        ("", {"losses": ["mixed_info_nce"]}),
    ],
    " ".join(four("pcl_en")): [
        ("train", {"batch_size": 64, "learning_rate": 3e-5, "epochs": 1}),
    ],
    " ".join(four("promcse_en")): [
        (
            "encoders.online",
            {"pooling": "cls", "head_at_eval": False, "heads": ["mlp"], "freeze": ["embeddings", "encoder"]},
        ),
        (
            "",
            {
                "train.epochs": 1,
                "train.evaluate_every": 125,
                "data.max_length": 32,
                "losses.info_nce.temperature": 0.05,
            },
        ),
    ],
    " ".join(four("promptbert_en")): [  # `evaluation.py:201` for the ending
        ("encoders.online", {"pooling": "mask", "denoise": "positions", "denoise_at_eval": None, "end_with": "stop"}),
        ("", {"encoders.online.end_in_training": None, "views.anchor.template": None}),
        ("train", {"batch_size": 256, "epochs": 1, "evaluate_every": 125}),
        ("losses.info_nce", {"temperature": 0.05}),
    ],
    "bert_prompt_en": [
        ("", {"train.steps": 0, "views": [], "losses": []}),
        ("encoders.online", {"template": PROMPT[1], "pooling": "mask", "denoise": None, "end_with": "stop"}),
    ],
    "pt_bert_en": [
        ("train", {"batch_size": 64, "learning_rate": 3e-5, "epochs": 1, "evaluate_every": 125}),
        ("encoders.momentum", {"decay": 0.885, "schedule": "constant", "share": []}),
        ("encoders.online", {"heads": ["pseudo_tokens", "mlp"], "heads.pseudo_tokens.tokens": 128}),
        ("", {"data.max_length": 64, "queue.length": 4 * 64, "losses.info_nce.temperature": 0.05}),
    ],
    **{
        " ".join(four(f"rankcse_{form}_en")): [  # the community's scripts
            ("train", {"batch_size": 128, "epochs": 1, "evaluate_every": 125}),
            ("losses", {"info_nce.weight": 1.0, "ranking_consistency.weight": 1.0, "ranking_distillation.weight": 1.0}),
            ("losses.ranking_consistency", {"temperature": 0.05, "divergence": "js"}),
            ("losses.ranking_distillation", {"form": form, "temperature": 0.05, "teacher_temperature": 0.025}),
            ("losses.ranking_distillation", {"mix": 0.33, "diagonal": form == "list_mle", "epsilon": 1e-7}),
            ("encoders.first_teacher", {"pooling": "cls", "heads": None}),
            ("encoders.second_teacher", {"pooling": "cls", "heads": None}),
        ]
        for form in ("list_net", "list_mle")
    },
    "rankencoder_en": [
        ("train", {"batch_size": 64, "learning_rate": 3e-5, "evaluate_every": 125, "seed": 61507}),
        ("losses.neighbor_ranks", {"weight": 0.05, "low": 0.5, "high": 0.9999, "limit": 10000, "dataset": "wiki1m"}),
        ("encoders.ranked", {"share": 0.9, "limit": 10000, "fit_on": "wiki1m", "similarity": "inner_product"}),
        ("evaluate", {"encoder": "ranked", "selection_encoder": "online"}),
        ("", {"evaluators.avg_dev.datasets": ["stsb", "sickr"]}),
    ],
    "scd_en scd_en_roberta": [  # the README's command line and the defaults of train.py
        ("train", {"batch_size": 192, "learning_rate": 3e-5, "epochs": 1, "evaluate_every": 250}),
        ("encoders.online", {"dropout": 0.05, "pooling": "cls", "heads.projector.widths": [4096, 4096, 4096]}),
        ("losses.similarity", {"weight": 1.0, "temperature": 0.05}),
        ("losses.decorrelation", {"weight": 0.005225, "off_diagonal": 0.012}),
        ("", {"views.positive.dropout": 0.155, "data.max_length": 32}),
        ("evaluate", {"metric_for_best_model": "sickr_dev.spearman"}),
    ],
    " ".join(four("sg_opt_en")): [
        ("train", {"batch_size": 16, "learning_rate": 5e-5, "epochs": 1, "evaluate_every": 50, "seed": 1}),
        ("losses", {"self_guided.temperature": 0.01, "self_guided.objective": "sg_opt", "stay_near.weight": 0.1}),
        ("encoders", {"online.freeze": ["embeddings"], "online.heads.feed_forward.initial": "normal"}),
        ("encoders.frozen", {"layers": None, "dropout": True}),
        ("", {"train.weight_decay": 0.0, "data.max_length": 128 + 3, "data.dataset": ["stsb_text"]}),
    ],
    "simcse_pp_en simcse_pp_en_roberta": [
        ("train", {"batch_size": 64, "epochs": 1, "evaluate_every": 125}),
        ("losses.split_contrast", {"temperature": 0.05, "positive_share": 1.0}),
        ("losses.dimension_contrast", {"weight": 0.1, "temperature": 5.0}),
        ("views", {"anchor.dropout": None, "positive.dropout": None, "undropped.dropout": 0.0}),
    ],
    " ".join(four("sncse_en")): [
        ("", {"train.epochs": 1, "train.evaluate_every": 125}),
        ("losses.bidirectional_margin", {"alpha": 0.1, "beta": 0.3}),
        ("encoders.online", {"template": 'This sentence : " {text} " means {mask} .', "end_with": "spaced_stop"}),
        ("encoders.online", {"end_in_training": True}),
        ("views.positive", {"template": 'This sentence of " {text} " means {mask} .'}),
        ("views.soft_negative", {"template": 'This sentence of " {text} " means {mask} .', "augment.0.name": "negate"}),
    ],
    " ".join((*four("sup_simcse_en"), *SYNCSE)): [
        ("train", {"batch_size": 512, "epochs": 3, "clip_norm": 1.0}),
        ("losses.info_nce", {"temperature": 0.05, "hard_weight": 0.0, "views.hard": "contradiction"}),
        ("", {"data.max_length": 32, "encoders.online.head_at_eval": True, "views.anchor.column": "text"}),
    ],
    " ".join(four("sup_simcse_en")): [
        ("", {"train.evaluate_every": 125, "evaluate.metric_for_best_model": "stsb_dev.spearman"}),
        ("views", {"positive.column": "positive", "contradiction.column": "negative"}),
    ],
    " ".join(SYNCSE): [
        ("", {"train.evaluate_every": 25, "evaluate.metric_for_best_model": "avg_dev.spearman"}),
        ("views", {"positive.column": "sent1"}),
    ],
    "tncse_en tncse_en_roberta": [
        ("train", {"learning_rate": 1e-6, "epochs": 1, "evaluate_every": 100, "schedule": "constant"}),
        ("train", {"weight_decay": 0.01, "clip_norm": 0.0}),
        ("", {"data.max_length": 64, "evaluate.encoder": "both"}),
        ("losses", {"first_contrast.weight": 1.0, "second_contrast.weight": 1.0, "cross_contrast.weight": 1.0}),
        ("losses", {"first_norm.weight": 1.0, "second_norm.weight": 1.0}),
        ("encoders.first", {"pooling": "cls", "head_at_eval": False, "heads.pooler.activation": "tanh"}),
        ("encoders.second", {"pooling": "cls", "head_at_eval": False, "heads.pooler.activation": "tanh"}),
        ("encoders", {f"{name}.heads.pooler.initial": "checkpoint" for name in ("first", "second")}),
    ],
    "tsdae_en": [
        ("train", {"steps": None, "epochs": 1, "batch_size": 8, "learning_rate": 3e-5, "evaluate_every": 1000}),
        ("train", {"schedule": "linear", "warmup_steps": 100, "weight_decay": 0, "epsilon": 1e-6, "clip_norm": 1}),
        ("", {"data.max_length": 75, "evaluate.max_length": 75, "encoders.online.pooling": "cls"}),
        ("views", {"damaged.augment.0.rate": 0.6, "whole.augment": []}),
        ("", {"losses": ["reconstruction"]}),
    ],
    "vascl_en vascl_en_roberta vascl_en_roberta_large": [
        ("train", {"batch_size": 1024, "learning_rate": 5e-6, "head_learning_rate": 100 * 5e-6, "optimizer": "adam"}),
        ("train", {"steps": 101, "evaluate_every": 101, "schedule": "constant", "clip_norm": 0.0, "seed": 0}),
        ("losses.virtual_neighbors", {"neighbors": 16, "epsilon": 15.0, "temperature": 0.05, "detached": True}),
        ("losses", {"virtual_neighbors.start": "uniform", "nt_xent.temperature": 0.05, "nt_xent.reduction": "mean"}),
        (
            "encoders.online.heads.feed_forward",
            {"width": 128, "activation": "relu", "bias": False, "initial": "normal"},
        ),
        ("", {"train.precision": "fp32", "encoders.online.pooling": "mean", "data.max_length": 32}),
        ("evaluate", {"max_length": 64}),
    ],
    "whitenedcse_en whitenedcse_en_large": [
        ("train", {"batch_size": 128, "learning_rate": 1e-5, "epochs": 1}),
        ("encoders.online", {"heads": ["group_whitening", "mlp"]}),
        ("encoders.online.heads.group_whitening", {"groups": 128, "rows": "sentences"}),
        ("losses", {"first.temperature": 0.05, "second.temperature": 0.05}),
    ],
}
"""Recipes of a method → settings that they have in common, with a prefix of their paths."""


def found(recipe, paths):
    """Return the values at paths of a recipe; of a table its keys."""
    values = [recipe.setting(path) for path in paths]
    return [list(value) if isinstance(value, Mapping | tuple) else value for value in values]


@pytest.mark.parametrize(
    ("name", "paths", "row"), [(n, paths, row) for paths, rows in VARIED for n, row in rows.items()]
)
def test_what_the_recipes_of_a_method_differ_in(name, paths, row):
    assert found(load(name).recipe, paths) == row


@pytest.mark.parametrize(
    ("name", "tables"), [(name, tables) for names, tables in SAME.items() for name in names.split()]
)
def test_what_the_recipes_of_a_method_have_in_common(name, tables):
    recipe = load(name).recipe
    for prefix, values in tables:
        paths = [f"{prefix}.{path}".removeprefix(".") for path in values]
        assert dict(zip(paths, found(recipe, paths), strict=True)) == dict(zip(paths, values.values(), strict=True))
