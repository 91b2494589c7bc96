"""Open a saved encoder: a cse export, a sentence-transformers directory, or a plain transformers model.

The `cse.json` of an export that is not a BERT-like model with one of its poolings contains a `format`. Such an export
has a `modules.json` only if sentence-transformers can give the same embeddings. A directory with modules or settings
that this module does not read is opened through sentence-transformers.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from torch import Tensor

from registry import ENCODERS
from registry.encoders import whole
from registry.encoders.adjusted import ADJUSTMENT, BASE, TARGET, Adjusted
from registry.encoders.convolutional import ConvolutionalEncoder, OnePooling
from registry.encoders.ditto import MeanPooling
from registry.encoders.export import CNN, CNN_CONFIG, MODULES, OWN_FORMAT, PREFIX, SETTINGS, TOKEN_POOLINGS
from registry.encoders.library import open_with_library
from registry.encoders.pooling import Pooling
from registry.encoders.prefixed import PrefixedEncoder
from registry.encoders.transformer import TransformerEncoder
from registry.encoders.two import PARTS, TwoEncoders
from registry.errors import CseError, MissingError, errors_as_one, suggestion
from registry.heads.layers import FixedDense
from registry.prompts import Prompts
from registry.resources.models import load_skeleton, load_tokenizer, locate
from registry.types import Encoder

POOLINGS: tuple[str, ...] = get_args(Pooling)
_POOLINGS: dict[str, tuple[str, ...]] = {"padded": ("mean",), "ditto": get_args(MeanPooling)}
"""Encoder → its poolings. With another one, the model is opened without what is special about the encoder."""
_ENCODERS = {"template": "transformer", "word_average": "word_vectors"}
"""Format → encoder, if their names differ."""
_LAYOUT = ("pooling", "first_layer_index", "template", "end_with", "denoise", "positions", "block", "head")
"""Keys of an export that are parameters of its encoder."""


@dataclass(frozen=True)
class _Saved:
    """Settings of a saved model.

    Args:
        transformer: Directory or name of the transformers model.
        pooling: Saved pooling.
        first_layer_index: Index of the first layer in "first_last".
        dense: Directories of the layers after the pooling.
        max_length: Saved maximum number of tokens.
        convolutions: Directory of the convolutions before the pooling, and their activation.
        normalizes: Whether the embeddings are scaled to length 1.
    """

    transformer: Path | str
    pooling: str | None = None
    first_layer_index: int = 0
    dense: tuple[Path, ...] = ()
    max_length: int | None = None
    convolutions: tuple[Path, str] | None = None
    normalizes: bool = False


class _UnsupportedError(CseError):
    """A module or setting of sentence-transformers that this module does not read."""


def check_pooling(pooling: str | None) -> None:
    """Raise an error for a name that is not a pooling. None is the pooling of the model."""
    if pooling is not None and pooling not in POOLINGS:
        hint = suggestion(pooling, POOLINGS)
        raise CseError(
            f"'{pooling}' is not a pooling.{hint}",
            f"use, for example, {', '.join(POOLINGS[:4])} or weighted_mean",
            code="encoders.unknown_pooling",
        )


def open_encoder(model: str, pooling: str | None = None, template: str | None = None) -> tuple[Encoder, int]:
    """Return a saved encoder in eval mode and its maximum number of tokens.

    Args:
        model: Directory, name under `$CSE_MODELS`, shipped model, or Hub ID.
        pooling: Pooling instead of the saved one. Default for a plain transformers model: "cls", for a decoder "last".
        template: Text around every sentence instead of the saved one, as for `TransformerEncoder`.

    Raises:
        CseError: If the model has settings or modules that neither cse nor sentence-transformers supports, or a pooling
            or template is given that they do not support.
        MissingError: If the model is not on this machine and cannot be downloaded.
    """
    check_pooling(pooling)
    folder = locate(model)
    action = "use a complete directory, or download it again"
    with errors_as_one(f"the model in {folder} cannot be opened", action, code="encoders.damaged_model"):
        try:
            encoder, limit = _open(model, folder, pooling, template)
        except _UnsupportedError as error:
            if pooling is not None or template is not None:
                problem = f"{error.message}, and sentence-transformers supports no other pooling and no template"
                raise CseError(problem, "remove --pooling and --template", code=error.code) from error
            return open_with_library(folder)
        encoder.prompts = Prompts.read(folder)
        return encoder, limit


def _open(model: str, folder: Path, pooling: str | None, template: str | None) -> tuple[Encoder, int]:
    exported = (folder / SETTINGS).is_file()
    settings = _json(folder / SETTINGS) if exported else {}
    if settings.get("format") is not None:
        return _open_own(folder, settings, pooling, template)
    if exported:
        saved = _read_export(folder, settings)
    else:
        saved = _read_modules(folder) if (folder / MODULES).is_file() else _Saved(model)
    chosen = pooling or saved.pooling
    given: dict[str, Any] = {
        "model": str(saved.transformer),
        "pooling": chosen or ("last" if whole.is_decoder(load_skeleton(str(saved.transformer))) else "cls"),
        "first_layer_index": 1 if saved.first_layer_index == 1 else 0,
        "head_at_eval": bool(saved.dense),
        "template": template,
    }
    encoder = TransformerEncoder(**given) if saved.convolutions is None else _convolutional(saved, given)
    encoder.attach({folder.name: _fixed(folder) for folder in saved.dense})
    encoder.normalizes = saved.normalizes
    limits = [saved.max_length or int(load_tokenizer(str(saved.transformer)).model_max_length), encoder.max_length]
    return encoder.eval(), min(limit for limit in limits if limit is not None)


def _open_own(folder: Path, settings: dict[str, Any], pooling: str | None, template: str | None) -> tuple[Encoder, int]:
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
    opens: Any = entry.cls.open
    base: Any = Encoder.open
    if opens.__func__ is base.__func__:
        if issubclass(entry.cls, TransformerEncoder):
            return _open_transformer(name, folder, settings, pooling, template)
        if issubclass(entry.cls, TwoEncoders):
            opened = [open_encoder(str(folder / part), pooling, template) for part in PARTS]
            parts = {part: encoder for part, (encoder, _) in zip(PARTS, opened, strict=True)}
            named = {**settings["settings"], **{part: part for part in PARTS}}
            return entry.build(named, parts).eval(), min(limit for _, limit in opened)
        if issubclass(entry.cls, Adjusted):
            of, limit = open_encoder(str(folder / BASE), pooling, template)
            adjusted = entry.build({**settings["settings"], "of": BASE, "fit_on": TARGET}, {BASE: of})
            assert isinstance(adjusted, Adjusted)
            if weights := _tensors(folder / ADJUSTMENT):
                adjusted.restore(weights)
            adjusted.fits = "never"
            return adjusted.eval(), limit
    given = {key: value for key, value in (("pooling", pooling), ("template", template)) if value is not None}
    values = settings.get("settings", settings)
    if missing := sorted(given.keys() - values.keys()):
        raise CseError(
            f"encoder '{name}' in {folder} has no {missing[0]}",
            f"remove --{missing[0]}",
            code="encoders.unsupported_setting",
        )
    return entry.cls.open(folder, {**values, **given}).eval(), int(settings["max_length"])


def _open_transformer(
    name: str, folder: Path, settings: dict[str, Any], pooling: str | None, template: str | None
) -> tuple[Encoder, int]:
    """Open a transformers model whose settings sentence-transformers does not have."""
    values = settings.get("settings") or {key: settings[key] for key in _LAYOUT if key in settings}
    given = {"model": str(folder), "pooling": pooling, "template": template}
    values = {**values, **{key: one for key, one in given.items() if one is not None}}
    values["denoise_at_eval"] = "denoise" in values
    if values["pooling"] not in _POOLINGS.get(name, POOLINGS):
        name = "transformer"
        values = {key: one for key, one in values.items() if key not in ("positions", "block", "head")}
    if name == "prefixed":
        prefix = _tensors(folder / PREFIX)["prefix"]
        values["length"] = prefix.shape[2]
    dense = sorted(folder.glob("*_Dense"))
    encoder = ENCODERS[name].build({**values, "head_at_eval": bool(dense)})
    if isinstance(encoder, PrefixedEncoder):
        encoder.prefix.data.copy_(prefix)
    encoder.attach({layer.name: _fixed(layer) for layer in dense})
    return encoder.eval(), int(settings["max_length"])


def _convolutional(saved: _Saved, given: dict[str, Any]) -> ConvolutionalEncoder:
    """Return the encoder with its saved convolutions.

    Raises:
        CseError: If the pooling uses more than one layer.
    """
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
    transformer, pooling, normalizes = folder, None, False
    dense: list[Path] = []
    for module in _json(folder / MODULES):
        kind, path = module["type"].rpartition(".")[2], folder / module["path"]
        if path != folder and path.parent != folder:
            raise CseError(
                f"{folder / MODULES}: '{module['path']}' is not a directory next to it",
                "download the model again",
                code="encoders.module_outside",
            )
        if kind == "Transformer":
            transformer = path
        elif kind == "Pooling":
            pooling = _pooling(path)
        elif kind == "Dense" and not normalizes:
            dense.append(path)
        elif kind == "Normalize":
            normalizes = True
        else:
            raise _UnsupportedError(
                f"{folder}: cse does not support the sentence-transformers module '{kind}'",
                "use a model with the modules Transformer, Pooling, Dense and Normalize, in this order",
                code="encoders.unsupported_module",
            )
    if pooling is None:
        raise _UnsupportedError(
            f"{folder / MODULES} has no Pooling module", "add its Pooling module", code="encoders.no_pooling"
        )
    limit = _max_length(transformer)
    return _Saved(transformer, pooling, dense=tuple(dense), max_length=limit, normalizes=normalizes)


def _pooling(folder: Path) -> str:
    """Return the pooling from the classic booleans, or from `pooling_mode` of release 6."""
    config = _json(folder / "config.json")
    named = config.get("pooling_mode", [])
    modes = [named] if isinstance(named, str) else list(named)
    if not modes:
        prefix = "pooling_mode_"
        on = [key.removeprefix(prefix) for key, value in config.items() if key.startswith(prefix) and value]
        modes = [key.removesuffix("_tokens").removesuffix("_token") for key in on]
    known = {mode.removesuffix("_tokens").removesuffix("_token"): pooling for pooling, mode in TOKEN_POOLINGS.items()}
    without_prompt = not config.get("include_prompt", True)
    if len(modes) != 1 or modes[0] not in known or without_prompt:
        raise _UnsupportedError(
            f"{folder}: cse does not support the pooling '{' and '.join(modes) or 'none'}'"
            f"{' without the prompt' if without_prompt else ''}",
            f"use a model with one of the poolings {', '.join(known)}",
            code="encoders.unsupported_pooling",
        )
    return known[modes[0]]


def own_pooling(folder: Path) -> str | None:
    """Return the pooling that a sentence-transformers directory declares, or None if cse supports none of it."""
    with suppress(_UnsupportedError):
        return _read_modules(folder).pooling if (folder / MODULES).is_file() else None
    return None


def _max_length(folder: Path) -> int | None:
    file = folder / "sentence_bert_config.json"
    if not file.is_file():
        return None
    config = _json(file)
    if config.get("do_lower_case"):
        raise _UnsupportedError(
            f"{file}: cse does not support do_lower_case = true",
            "set do_lower_case in the tokenizer instead",
            code="encoders.unsupported_lower_case",
        )
    limit = config.get("max_seq_length")
    return None if limit is None else int(limit)


def _fixed(folder: Path) -> FixedDense:
    """Return a Dense module of sentence-transformers as a head.

    Raises:
        CseError: If the module is not tanh(Wx + b) or Wx + b.
        MissingError: If the weights do not exist.
    """
    config = _json(folder / "config.json")
    activation = str(config.get("activation_function", "")).rpartition(".")[2]
    if activation not in ("Tanh", "Identity") or config.get("use_residual") or not config.get("bias", True):
        raise _UnsupportedError(
            f"{folder}: the dense layer is not tanh(Wx + b) or Wx + b (activation '{activation}')",
            "use a model with the activation Tanh or Identity, with bias and without residual",
            code="encoders.unsupported_dense",
        )
    weights = _tensors(folder / "model.safetensors")
    sigma: Literal["Tanh", "Identity"] = "Tanh" if activation == "Tanh" else "Identity"
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


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise MissingError(
            f"{path} cannot be read: {error}", "save the model again", code="encoders.unreadable_settings"
        ) from error
