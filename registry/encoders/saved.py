"""Open a finished encoder: a cse export, a sentence-transformers directory, or a plain transformers model.

Exports that are no BERT-like model with one of its poolings have a form of their own: a `cse.json` with a `format`, and
a `modules.json` only where sentence-transformers can make the same vectors.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from torch import Tensor

from registry import ENCODERS
from registry.encoders import backbone as split
from registry.encoders.adjusted import ADJUSTMENT, BASE, TARGET, Adjusted
from registry.encoders.auto_model import AutoModelEncoder
from registry.encoders.convolutional import ConvolutionalEncoder, OnePooling
from registry.encoders.export import (
    CNN,
    CNN_CONFIG,
    OWN_FORMAT,
    PREFIX,
    PREFIXED,
    SETTINGS,
    TEMPLATED,
    TOKEN_POOLINGS,
)
from registry.encoders.pooling import Pooling
from registry.encoders.prefixed import PrefixedEncoder
from registry.encoders.transformer import TransformerEncoder
from registry.encoders.word_vectors import VECTORS, WORDS, WordAverage
from registry.errors import CseError, MissingError, errors_as_one, suggestion
from registry.heads.layers import FixedDense
from registry.models import load_config, load_tokenizer, locate
from registry.types import Encoder

POOLINGS: tuple[str, ...] = get_args(Pooling)
ALL_POOLINGS: tuple[str, ...] = tuple(dict.fromkeys((*POOLINGS, *TOKEN_POOLINGS)))


@dataclass(frozen=True)
class _Saved:
    """What a directory says of itself.

    Args:
        transformer: The model.
        dense: Layers after pooling.
        convolutions: Those before pooling, and what follows them.
    """

    transformer: Path | str
    pooling: str | None = None
    first_layer_index: int = 0
    dense: tuple[Path, ...] = ()
    max_length: int | None = None
    convolutions: tuple[Path, str] | None = None


def open_encoder(model: str, pooling: str | None = None, template: str | None = None) -> tuple[Encoder, int]:
    """Return an encoder in eval mode whose `represent` is the saved model's, and its length limit in tokens.

    Args:
        model: Directory, name under `$CSE_MODELS`, shipped model, or hub id.
        pooling: Instead of the saved one; a plain transformers model, which has none, gets "cls", and a decoder "last".
        template: Text around every sentence, as `TransformerEncoder` takes it, instead of the saved one.

    Raises:
        CseError: Its sentence vectors are made in a way this project does not know.
        MissingError: It is not on this machine and cannot be fetched.
    """
    if pooling is not None and pooling not in ALL_POOLINGS:
        hint = suggestion(pooling, ALL_POOLINGS)
        raise CseError(f"unknown pooling {pooling!r}.{hint}", f"one of {', '.join(ALL_POOLINGS)}")
    folder = locate(model)
    with errors_as_one(f"the model in {folder} cannot be opened", "give a directory that cse or its authors wrote"):
        return _open(model, folder, pooling, template)


def _open(model: str, folder: Path, pooling: str | None, template: str | None) -> tuple[Encoder, int]:
    settings = _json(folder / SETTINGS) if (folder / SETTINGS).is_file() else {}
    if settings.get("format") is not None:
        return _open_own(folder, settings, pooling, template)
    saved = _read(model)
    chosen = pooling or saved.pooling
    if chosen not in (None, *POOLINGS) or not split.can_be_split(load_config(str(saved.transformer))):
        return _open_whole(saved, chosen, template)
    given: dict[str, Any] = {
        "model": str(saved.transformer),
        "pooling": chosen or "cls",
        "first_layer_index": 1 if saved.first_layer_index == 1 else 0,
        "head_at_eval": bool(saved.dense),
        "template": template,
    }
    encoder = TransformerEncoder(**given) if saved.convolutions is None else _convolutional(saved, given)
    encoder.attach({folder.name: _fixed(folder) for folder in saved.dense})
    limit = saved.max_length or int(load_tokenizer(str(saved.transformer)).model_max_length)
    return encoder.eval(), min(limit, encoder.max_length)


def _open_whole(saved: _Saved, pooling: str | None, template: str | None) -> tuple[Encoder, int]:
    """Open a model that cannot be taken apart: a decoder, which pools its last token if nothing else is said, or other.

    Raises:
        CseError: It has layers after the pooling, or no such pooling.
    """
    if saved.dense:
        raise CseError(f"{saved.dense[0]}: no layer may follow the pooling of this architecture", "remove the module")
    given = {"pooling": pooling, "template": template}
    encoder = _whole({"model": str(saved.transformer), **{key: one for key, one in given.items() if one is not None}})
    if pooling is None:
        encoder.eval_pooling = "last" if encoder.attention == "causal" else "cls"
    limits = [saved.max_length or int(load_tokenizer(str(saved.transformer)).model_max_length), encoder.max_length]
    return encoder.eval(), min(limit for limit in limits if limit is not None)


def _whole(values: dict[str, Any]) -> AutoModelEncoder:
    encoder = ENCODERS["auto_model"].build(values)
    assert isinstance(encoder, AutoModelEncoder)
    return encoder


def _open_own(folder: Path, settings: dict[str, Any], pooling: str | None, template: str | None) -> tuple[Encoder, int]:
    """Open an export in a form of our own: a whole model, averages of words, or an adjustment of another export."""
    adjusted = {entry.name for entry in ENCODERS if issubclass(entry.cls, Adjusted)}
    known = {"word_average", "auto_model", TEMPLATED, PREFIXED, *adjusted}
    if settings.get("schema_version") != OWN_FORMAT or settings["format"] not in known:
        form = f"{settings['format']!r}, schema_version {settings.get('schema_version')}"
        raise CseError(
            f"{folder / SETTINGS} has format {form}, which this cse does not read", "use the cse that wrote it"
        )
    if settings["format"] == "auto_model":
        given = {"pooling": pooling, "template": template, "model": str(folder)}
        values = {key: one for key, one in given.items() if one is not None}
        return _whole({**settings["settings"], **values}).eval(), int(settings["max_length"])
    if settings["format"] == "word_average":
        if pooling is not None:
            raise CseError(f"{folder} averages word vectors and has no pooling to replace", "leave out --pooling")
        if template is not None:
            raise CseError(f"{folder} averages word vectors and takes no template", "leave out --template")
        words = _json(folder / WORDS)
        average = WordAverage(words, _tensors(folder / VECTORS)["table"], settings["lower"], frozen=True)
        return average.eval(), int(settings["max_length"])
    if settings["format"] in (TEMPLATED, PREFIXED):
        return _open_templated(folder, settings, pooling, template)
    base, limit = open_encoder(str(folder / BASE), pooling, template)
    values = {**settings["settings"], "of": BASE, "fit_on": TARGET}
    encoder = ENCODERS[settings["format"]].build(values, {BASE: base})
    assert isinstance(encoder, Adjusted)
    if weights := _tensors(folder / ADJUSTMENT):
        encoder.restore(weights)
    encoder.fits = "never"
    return encoder.eval(), limit


def _open_templated(
    folder: Path, settings: dict[str, Any], pooling: str | None, template: str | None
) -> tuple[Encoder, int]:
    """Open an encoder that puts a template around every sentence, or has a prefix, or both."""
    dense = sorted(folder.glob("*_Dense"))
    given: dict[str, Any] = {
        **{key: settings[key] for key in ("first_layer_index", "denoise") if key in settings},
        "template": template or settings.get("template"),
        "pooling": pooling or settings["pooling"],
        "head_at_eval": bool(dense),
        "denoise_at_eval": "denoise" in settings,
    }
    if settings["format"] == PREFIXED:
        weights = _tensors(folder / PREFIX)["prefix"]
        prefixed = PrefixedEncoder(length=weights.shape[2], model=str(folder), **given)
        prefixed.prefix.data.copy_(weights)
        encoder: TransformerEncoder = prefixed
    else:
        encoder = TransformerEncoder(str(folder), **given)
    encoder.attach({layer.name: _fixed(layer) for layer in dense})
    return encoder.eval(), int(settings["max_length"])


def _convolutional(saved: _Saved, given: dict[str, Any]) -> ConvolutionalEncoder:
    """Return the encoder with the convolutions that were saved.

    Raises:
        CseError: The pooling asked for reads more than one layer.
    """
    assert saved.convolutions is not None
    if given["pooling"] not in get_args(OnePooling):
        raise CseError(
            f"pooling {given['pooling']!r} reads two layers, and {saved.transformer} convolves the last one alone",
            f"one of {', '.join(get_args(OnePooling))}",
        )
    folder, activation = saved.convolutions
    config = _json(folder / CNN_CONFIG)
    shape = {"windows": config["kernel_sizes"], "channels": config["out_channels"], "activation": activation}
    encoder = ConvolutionalEncoder(**shape, **given)
    encoder.convolutions.load_state_dict(_tensors(folder / "model.safetensors"))
    return encoder


def _read(model: str) -> _Saved:
    folder = locate(model)
    if (folder / SETTINGS).is_file():
        return _read_export(folder)
    if (folder / "modules.json").is_file():
        return _read_modules(folder)
    return _Saved(model)


def _read_export(folder: Path) -> _Saved:
    settings = _json(folder / SETTINGS)
    if settings.get("schema_version") != 1:
        raise CseError(f"{folder / SETTINGS} has schema_version {settings.get('schema_version')}, this cse reads 1")
    dense = tuple(sorted(folder.glob("*_Dense"))) if settings["head"] != "none" else ()
    convolutions = (next(folder.glob(f"*_{CNN}")), settings["activation"]) if "activation" in settings else None
    return _Saved(
        folder, settings["pooling"], settings["first_layer_index"], dense, settings["max_length"], convolutions
    )


def _read_modules(folder: Path) -> _Saved:
    """Read a sentence-transformers directory; the normalising module is left out, cosine does not see it."""
    transformer, pooling = folder, None
    dense: list[Path] = []
    for module in _json(folder / "modules.json"):
        kind, path = module["type"].rpartition(".")[2], folder / module["path"]
        if path != folder and path.parent != folder:
            raise CseError(f"{folder / 'modules.json'} names {module['path']!r}, which is no folder in it")
        if kind == "Transformer":
            transformer = path
        elif kind == "Pooling":
            pooling = _pooling(path)
        elif kind == "Dense":
            dense.append(path)
        elif kind != "Normalize":
            raise CseError(f"{folder} has a sentence-transformers module {kind!r} that cse cannot reproduce")
    if pooling is None:
        raise CseError(f"{folder / 'modules.json'} names no pooling", "add its Pooling module")
    return _Saved(transformer, pooling, dense=tuple(dense), max_length=_max_length(transformer))


def _pooling(folder: Path) -> str:
    """Return the pooling of either form: the classic booleans, or `pooling_mode` of release 6."""
    config = _json(folder / "config.json")
    named = config.get("pooling_mode", [])
    modes = [named] if isinstance(named, str) else list(named)
    if not modes:
        prefix = "pooling_mode_"
        on = [key.removeprefix(prefix) for key, value in config.items() if key.startswith(prefix) and value]
        modes = [key.removesuffix("_tokens").removesuffix("_token") for key in on]
    known = {mode.removesuffix("_tokens").removesuffix("_token"): ours for ours, mode in TOKEN_POOLINGS.items()}
    if len(modes) != 1 or modes[0] not in known:
        raise CseError(f"{folder} pools by {' and '.join(modes) or 'nothing'}: cse knows {', '.join(known)}")
    return known[modes[0]]


def _max_length(folder: Path) -> int | None:
    file = folder / "sentence_bert_config.json"
    if not file.is_file():
        return None
    config = _json(file)
    if config.get("do_lower_case"):
        raise CseError(f"{file} asks for lower-casing outside the tokenizer, which cse does not do")
    limit = config.get("max_seq_length")
    return None if limit is None else int(limit)


def _fixed(folder: Path) -> FixedDense:
    """Return a Dense module of sentence-transformers as a head.

    Raises:
        CseError: It does what no head here does.
        MissingError: Its weights are not there.
    """
    config = _json(folder / "config.json")
    activation = str(config.get("activation_function", "")).rpartition(".")[2]
    if activation not in ("Tanh", "Identity") or config.get("use_residual") or not config.get("bias", True):
        raise CseError(f"{folder} is a dense layer of another form than tanh(Wx + b) or Wx + b")
    weights = _tensors(folder / "model.safetensors")
    sigma: Literal["Tanh", "Identity"] = "Tanh" if activation == "Tanh" else "Identity"
    return FixedDense(weights["linear.weight"], weights["linear.bias"], sigma)


def _tensors(file: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    if not file.is_file():
        raise MissingError(f"the weights {file} are missing", "save the model again with safetensors")
    return load_file(file)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise MissingError(f"{path} cannot be read: {error}", "save the model again") from error
