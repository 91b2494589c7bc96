"""Open a saved encoder: a cse export, a sentence-transformers directory, or a plain transformers model.

The `cse.json` of an export that is not a BERT-like model with one of its poolings contains a `format`. If
sentence-transformers cannot give the same embeddings, its `modules.json` names the module that computes them through
cse. An encoder with a template has no prompts, which are the same template for sentence-transformers. A directory of
sentence-transformers is read only if all of its modules, settings and their values are listed here. Others are opened
through sentence-transformers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from torch import Tensor

from registry import ENCODERS
from registry.encoders.adjusted import ADJUSTMENT, BASE, TARGET, Adjusted
from registry.encoders.architectures import is_decoder
from registry.encoders.convolutional import ConvolutionalEncoder, OnePooling
from registry.encoders.ditto import MeanPooling
from registry.encoders.export import CNN, CNN_CONFIG, MODULES, NORMALIZE, OWN_FORMAT, PREFIX, SETTINGS, TOKEN_POOLINGS
from registry.encoders.library import UNLIMITED, open_with_library
from registry.encoders.prefixed import PrefixedEncoder
from registry.encoders.transformer import TransformerEncoder
from registry.encoders.two import PARTS, TwoEncoders
from registry.errors import CseError, MissingError, errors_as_one, suggestion
from registry.heads.layers import FixedDense
from registry.prompts import PROMPTS, Prompts
from registry.resources.models import is_native, load_skeleton, load_tokenizer, locate
from registry.types import BUILT_IN, Encoder

_FIRST_LAYERS = {"first_last": 0, "avg_first_last": 1}
"""Pooling of a command → `first_layer_index` of "first_last". SimCSE's code has the second name."""
_POOLINGS: dict[str, Collection[str]] = {"padded": ("mean",), "ditto": get_args(MeanPooling)}
"""Encoder → its poolings. With another one, the model is opened without what is special about the encoder."""
_ENCODERS = {"template": "transformer", "word_average": "word_vectors"}
"""Format → encoder, if their names differ."""
_LAYOUT = ("pooling", "first_layer_index", "template", "end_with", "denoise", "positions", "block", "head")
"""Keys of an export that are parameters of its encoder."""

_KINDS = {
    f"sentence_transformers.{home}.{name}": kind
    for kind in ("Transformer", "Pooling", "Dense", "Normalize")
    for home in ("models", "base.modules", "sentence_transformer.modules")
    for name in (kind, f"{kind}.{kind}", f"{kind.lower()}.{kind}")
}
"""Class of a module in any release of sentence-transformers → kind of module."""
_ANY = object()
_IN_PLACE = dict.fromkeys(("module_input_name", "module_output_name"), ("sentence_embedding",))
_ACCEPTED: dict[str, dict[str, Any]] = {
    "model": {
        **dict.fromkeys(("__version__", "prompts", "default_prompt_name", "similarity_fn_name"), _ANY),
        "model_type": ("SentenceTransformer",),
        "truncate_dim": (),
    },
    "module": {**dict.fromkeys(("idx", "name", "path", "type"), _ANY), "kwargs": ([],)},
    "tokenizer": {"truncation_side": ("right",)},
    "Transformer": {
        **dict.fromkeys(("max_seq_length", "unpad_inputs"), _ANY),
        "do_lower_case": (False,),
        "transformer_task": ("feature-extraction",),
        "modality_config": ({"text": {"method": "forward", "method_output_name": "last_hidden_state"}},),
        "module_output_name": ("token_embeddings",),
        "processing_kwargs": ({},),
        **dict.fromkeys(
            ("model_args", "model_kwargs"), ({}, {"add_pooling_layer": False}, {"attn_implementation": "eager"})
        ),
        **dict.fromkeys(("tokenizer_args", "processor_kwargs", "config_args", "config_kwargs"), ({},)),
        **dict.fromkeys(("query_length", "document_length", "query_expansion"), ()),
    },
    "Pooling": {
        **dict.fromkeys(("word_embedding_dimension", "embedding_dimension", "pooling_mode"), _ANY),
        **{f"pooling_mode_{mode}_tokens": _ANY for mode in ("max", "mean", "mean_sqrt_len", "weightedmean")},
        **dict.fromkeys(("pooling_mode_cls_token", "pooling_mode_lasttoken"), _ANY),
        "include_prompt": (True,),
    },
    "Dense": {
        **dict.fromkeys(("in_features", "out_features", "activation_function"), _ANY),
        "bias": (True,),
        "use_residual": (False,),
        **_IN_PLACE,
    },
    "Normalize": _IN_PLACE,
}
"""File of sentence-transformers → its settings that this module reads → accepted values, in addition to null."""
_TRANSFORMER_CONFIGS = [
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
]
"""Files with the settings of a Transformer module. sentence-transformers reads the first one with content."""


@dataclass(frozen=True)
class _Saved:
    """Settings of a saved model."""

    transformer: Path | str
    pooling: str | None = None
    first_layer_index: int = 0
    dense: tuple[Path, ...] = ()
    max_length: int | None = None
    convolutions: tuple[Path, str] | None = None  # directory and activation
    normalizes: bool = False


class _UnsupportedError(CseError):
    """A module or setting of sentence-transformers that this module does not read."""


def check_pooling(pooling: str | None) -> None:
    """Raise an error for a name that is not a pooling. None is the pooling of the model."""
    names = {*BUILT_IN, *_FIRST_LAYERS}
    if pooling is not None and pooling not in names:
        raise CseError(
            f"'{pooling}' is not a pooling.{suggestion(pooling, names)}",
            "use, for example, cls, mean, first_last, avg_first_last or weighted_mean",
            code="encoders.unknown_pooling",
        )


def open_encoder(model: str, pooling: str | None = None, template: str | None = None) -> tuple[Encoder, int]:
    """Return a saved encoder in eval mode and its maximum number of tokens.

    Args:
        model: Directory, name under `$CSE_MODELS`, shipped model, or Hub ID.
        pooling: Pooling instead of the saved one. "first_last" averages the embedding layer and the last layer,
            "avg_first_last" the first block and the last. Default for a plain transformers model: "cls", for a decoder
            "last".
        template: Text around every sentence instead of the saved one, as for `TransformerEncoder`.
    """
    check_pooling(pooling)
    first = _FIRST_LAYERS.get(pooling or "")
    named = pooling if first is None else "first_last"
    given = {"pooling": named, "first_layer_index": first, "template": template}
    return _open_model(model, {key: value for key, value in given.items() if value is not None})


def _open_model(model: str, given: dict[str, Any]) -> tuple[Encoder, int]:
    """Open a model with the given parameters instead of the saved ones."""
    folder = locate(model)
    action = "use a complete directory, or download it again"
    with errors_as_one(f"the model in {folder} cannot be opened", action, code="encoders.damaged_model"):
        try:
            encoder, limit = _open(model, folder, given)
        except _UnsupportedError as error:
            if given:
                problem = f"{error.message}, and sentence-transformers supports no other pooling and no template"
                raise CseError(problem, "remove --pooling and --template", code=error.code) from error
            return open_with_library(folder)
        if getattr(encoder.vocabulary, "template", None) is None:
            encoder.prompts = Prompts.read(folder)
        if next(folder.glob(f"*_{NORMALIZE}"), None) is not None:  # also after an encoder that only cse opens
            encoder.normalizes = True
        return encoder, limit


def _open(model: str, folder: Path, given: dict[str, Any]) -> tuple[Encoder, int]:
    exported = (folder / SETTINGS).is_file()
    settings = _json(folder / SETTINGS) if exported else {}
    if settings.get("format") is not None:
        return _open_own(folder, settings, given)
    if exported:
        saved = _read_export(folder, settings)
    else:
        saved = _read_modules(folder) if (folder / MODULES).is_file() else _Saved(model)
    given = {
        "model": str(saved.transformer),
        "pooling": saved.pooling,
        "first_layer_index": 1 if saved.first_layer_index == 1 else 0,
        "head_at_eval": bool(saved.dense),
        **given,
    }
    if given["pooling"] is None:
        given["pooling"] = "last" if is_decoder(load_skeleton(given["model"])) else "cls"
    encoder = TransformerEncoder(**given) if saved.convolutions is None else _convolutional(saved, given)
    encoder.attach({folder.name: _fixed(folder) for folder in saved.dense})
    encoder.normalizes = saved.normalizes
    own = saved.max_length or int(load_tokenizer(str(saved.transformer)).model_max_length)
    return encoder.eval(), min(own, encoder.max_length or UNLIMITED)


def _open_own(folder: Path, settings: dict[str, Any], given: dict[str, Any]) -> tuple[Encoder, int]:
    """Open an export in a format that only cse reads. Most formats are names of encoders."""
    name = str(settings["format"])
    name = _ENCODERS.get(name, name)
    if settings.get("schema_version") != OWN_FORMAT or name not in ENCODERS:
        form = f"{settings['format']!r}, schema_version {settings.get('schema_version')}"
        raise CseError(
            f"{folder / SETTINGS}: this version of cse does not read format {form}",
            "use the version of cse that wrote the directory, or load its encoder with --plugin FILE",
            code="encoders.unknown_format",
        )
    entry = ENCODERS[name]
    ways = {TransformerEncoder: _open_transformer, TwoEncoders: _open_two, Adjusted: _open_adjusted}
    way = next((of_kind for kind, of_kind in ways.items() if issubclass(entry.cls, kind)), None)
    opens: Any = entry.cls.open
    base: Any = Encoder.open
    if way is not None and opens.__func__ is base.__func__:
        return way(name, folder, settings, given)
    values = settings.get("settings", settings)
    if missing := [key for key in given if key not in values]:
        raise CseError(
            f"encoder '{name}' in {folder} has no {missing[0]}",
            f"remove --{missing[0]}",
            code="encoders.unsupported_setting",
        )
    return entry.cls.open(folder, {**values, **given}).eval(), int(settings["max_length"])


def _open_two(name: str, folder: Path, settings: dict[str, Any], given: dict[str, Any]) -> tuple[Encoder, int]:
    opened = [_open_model(str(folder / part), given) for part in PARTS]
    parts = {part: encoder for part, (encoder, _) in zip(PARTS, opened, strict=True)}
    named = {**settings["settings"], **{part: part for part in PARTS}}
    return ENCODERS[name].build(named, parts).eval(), min(limit for _, limit in opened)


def _open_adjusted(name: str, folder: Path, settings: dict[str, Any], given: dict[str, Any]) -> tuple[Encoder, int]:
    of, limit = _open_model(str(folder / BASE), given)
    adjusted = ENCODERS[name].build({**settings["settings"], "of": BASE, "fit_on": TARGET}, {BASE: of})
    assert isinstance(adjusted, Adjusted)
    if weights := _tensors(folder / ADJUSTMENT):
        adjusted.restore(weights)
    adjusted.fits = "never"
    return adjusted.eval(), limit


def _open_transformer(name: str, folder: Path, settings: dict[str, Any], given: dict[str, Any]) -> tuple[Encoder, int]:
    """Open a transformers model whose settings sentence-transformers does not have."""
    values = {**settings.get("settings", {}), **{key: settings[key] for key in _LAYOUT if key in settings}}
    values = {**values, "model": str(folder), **given}
    values["denoise_at_eval"] = "denoise" in values
    if values["pooling"] not in _POOLINGS.get(name, BUILT_IN):
        name = "transformer"
        values = {key: one for key, one in values.items() if key not in ("positions", "block", "head")}
    prefix = _tensors(folder / PREFIX)["prefix"] if issubclass(ENCODERS[name].cls, PrefixedEncoder) else None
    if prefix is not None:
        values["length"] = prefix.shape[2]
    dense = sorted(folder.glob("*_Dense"))
    encoder = ENCODERS[name].build({**values, "head_at_eval": bool(dense)})
    if isinstance(encoder, PrefixedEncoder) and prefix is not None:
        encoder.prefix.data.copy_(prefix)
    encoder.attach({layer.name: _fixed(layer) for layer in dense})
    return encoder.eval(), int(settings["max_length"])


def _convolutional(saved: _Saved, given: dict[str, Any]) -> ConvolutionalEncoder:
    """Return the encoder with its saved convolutions."""
    assert saved.convolutions is not None
    if given["pooling"] not in get_args(OnePooling):
        raise CseError(
            f"pooling '{given['pooling']}' does not work with {saved.transformer}, which convolves only the last layer",
            f"use {' or '.join(get_args(OnePooling))}",
            code="encoders.unsupported_pooling",
        )
    folder, activation = saved.convolutions
    config = _json(folder / CNN_CONFIG)
    shape = {"windows": config["kernel_sizes"], "channels": config["out_channels"], "activation": activation}
    encoder = ConvolutionalEncoder(**shape, **given)
    encoder.convolutions.load_state_dict(_tensors(folder / "model.safetensors"))
    return encoder


def _read_export(folder: Path, settings: dict[str, Any]) -> _Saved:
    if settings.get("schema_version") != 1:
        raise CseError(
            f"{folder / SETTINGS}: this version of cse reads schema_version 1, not {settings.get('schema_version')}",
            "use the version of cse that wrote the directory",
            code="encoders.unknown_format",
        )
    dense = tuple(sorted(folder.glob("*_Dense"))) if settings["head"] != "none" else ()
    convolutions = (next(folder.glob(f"*_{CNN}")), settings["activation"]) if "activation" in settings else None
    return _Saved(
        folder, settings["pooling"], settings["first_layer_index"], dense, settings["max_length"], convolutions
    )


def _read_modules(folder: Path) -> _Saved:
    """Read a sentence-transformers directory with a Transformer, a Pooling, Dense modules and a Normalize, in order."""
    _settings(folder / PROMPTS, "model")
    kinds, paths = [], []
    for module in _json(folder / MODULES):
        path = folder / module["path"]
        if path != folder and path.parent != folder:
            raise CseError(
                f"{folder / MODULES}: '{module['path']}' is not a directory next to it",
                "download the model again",
                code="encoders.module_outside",
            )
        _accept(folder / MODULES, module, "module")
        if not module["type"].startswith("sentence_transformers."):
            raise CseError(
                f"{folder / MODULES}: the module '{module['type']}' is Python code that is not part of "
                "sentence-transformers, and cse does not execute the code of a model",
                f"save the model with modules of sentence-transformers, such as Pooling in {path.name}, or write an "
                "encoder in your own file: --plugin, docs/extend.md",
                code="encoders.custom_module",
            )
        kinds.append(_KINDS.get(module["type"], module["type"]))
        paths.append(path)
    if not re.fullmatch("Transformer Pooling( Dense)*( Normalize)?", " ".join(kinds)):
        raise _UnsupportedError(
            f"{folder}: cse does not support the sentence-transformers modules {', '.join(kinds)}",
            "use a model with the modules Transformer, Pooling, Dense and Normalize, in this order",
            code="encoders.unsupported_module",
        )
    transformer, pooling, *others = paths
    if (tokenizer := transformer / "tokenizer_config.json").is_file():
        _accept(tokenizer, {"truncation_side": _json(tokenizer).get("truncation_side")}, "tokenizer")
    if normalizes := kinds[-1] == "Normalize":
        _settings(others.pop() / "config.json", "Normalize")
    configs = (_settings(transformer / name, "Transformer") for name in _TRANSFORMER_CONFIGS)
    config: dict[str, Any] = next(filter(None, configs), {})
    limit = None if config.get("max_seq_length") is None else int(config["max_seq_length"])
    return _Saved(transformer, _pooling(pooling), dense=tuple(others), max_length=limit, normalizes=normalizes)


def _pooling(folder: Path) -> str:
    """Return the pooling from the classic booleans, or from `pooling_mode` of release 6."""
    config = _settings(folder / "config.json", "Pooling")
    named = config.get("pooling_mode", [])
    modes = [named] if isinstance(named, str) else list(named)
    if not modes:
        prefix = "pooling_mode_"
        on = [key.removeprefix(prefix) for key, value in config.items() if key.startswith(prefix) and value]
        modes = [key.removesuffix("_tokens").removesuffix("_token") for key in on]
    known = {mode.removesuffix("_tokens").removesuffix("_token"): pooling for pooling, mode in TOKEN_POOLINGS.items()}
    if len(modes) != 1 or modes[0] not in known:
        raise _UnsupportedError(
            f"{folder}: cse does not support the pooling '{' and '.join(modes) or 'none'}'",
            f"use a model with one of the poolings {', '.join(known)}",
            code="encoders.unsupported_pooling",
        )
    return known[modes[0]]


def own_pooling(folder: Path) -> str | None:
    """Return the pooling that a sentence-transformers directory declares, or None if cse supports none of it."""
    with suppress(_UnsupportedError):
        return _read_modules(folder).pooling if is_native(folder) else None
    return None


def _fixed(folder: Path) -> FixedDense:
    """Return a Dense module of sentence-transformers as a head."""
    name = str(_settings(folder / "config.json", "Dense").get("activation_function"))
    if not re.fullmatch(r"torch\.nn\.(modules\.(activation|linear)\.)?(Tanh|Identity)", name):
        raise _UnsupportedError(
            f"{folder}: cse does not support a dense layer with the activation '{name}'",
            "use a model with the activation Tanh or Identity",
            code="encoders.unsupported_dense",
        )
    weights = _tensors(folder / "model.safetensors")
    sigma: Literal["Tanh", "Identity"] = "Tanh" if name.endswith("Tanh") else "Identity"
    return FixedDense(weights["linear.weight"], weights["linear.bias"], sigma)


def _tensors(file: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    if not file.is_file():
        raise MissingError(
            f"the file of weights {file} does not exist",
            "save the model again with safetensors",
            code="encoders.missing_weights",
        )
    return load_file(file)


def _settings(file: Path, kind: str) -> Any:
    """Return the settings in a file, or none if it does not exist, after `_accept`."""
    found = _json(file) if file.is_file() else {}
    _accept(file, found, kind)
    return found


def _accept(file: Path, settings: Mapping[str, Any], kind: str) -> None:
    """Raise `_UnsupportedError` for a setting or a value that is not in `_ACCEPTED`."""
    for key, value in settings.items():
        accepted = _ACCEPTED[kind].get(key)
        if accepted is None or not (value is None or accepted is _ANY or value in accepted):
            raise _UnsupportedError(
                f"{file}: cse does not support the setting {key} = {json.dumps(value)}",
                "use a model without this setting",
                code="encoders.unsupported_setting",
            )


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise MissingError(
            f"{path} cannot be read: {error}", "save the model again", code="encoders.unreadable_settings"
        ) from error
