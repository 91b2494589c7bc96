"""Export of an encoder to a directory that transformers and sentence-transformers load.

The layout is the classic one of sentence-transformers, which release 6 still reads. `cse.json` contains the same
settings in one file for `registry.encoders.saved`. Averages of two layers are written as a weighted mean of layers.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import Tensor, eye, tensor, zeros

from registry.encoders.convolutions import Convolutions
from registry.encoders.pooling import averaged
from registry.resources.models import quiet_transformers, without_pooler

MODULES = "modules.json"
"""File that makes a directory a sentence-transformers model."""

SETTINGS = "cse.json"
"""File with the settings for the embeddings of an export."""

CNN, CNN_CONFIG, RELU = "CNN", "cnn_config.json", "ReLU"
"""Names of the convolution module, its settings file, and the ReLU module after it."""

PADDING_NOTE = (
    "The states of tokens are convolved before the pooling. Releases of sentence-transformers up to 6.2 also convolve "
    "padding: use `batch_size=1` with them."
)
"""Note in the model card of an encoder with convolutions."""

OWN_FORMAT = 2
"""Schema version of `cse.json` in a directory that only cse opens."""

TEMPLATED = "template"
"""Value of `format` for an encoder with a template around every sentence."""

PREFIXED = "prefixed"
"""Value of `format` for an encoder with learned keys and values. It can also have a template."""

PREFIX = "prefix.safetensors"

PADDED = "padded"
"""Value of `format` for an encoder that averages a fixed number of positions. It can also have a template."""

DITTO = "ditto"
"""Value of `format` for an encoder that weights tokens by attention to themselves. It can also have a template."""


@dataclass(frozen=True)
class Layout:
    """Settings with which the exported model computes sentence embeddings.

    Args:
        pooling: Pooling in evaluation.
        first_layer_index: Index of the first layer in "first_last".
        dense: Weight, bias and activation of the dense layers in evaluation.
        max_length: Maximum number of tokens, special tokens included.
        origin: Model before the training, for the model card.
        convolutions: Convolutions of the last layer's states before the pooling.
        template: Encoder parameters for the template, endings and denoising. Only cse opens a model with a template,
            because no sentence-transformers module adds text on both sides.
        prefix: Learned keys and values of every block. Only cse opens a model with a prefix.
        positions: Number of positions that the mean covers, padding included. Only cse opens such a model.
        diagonal: `block` and `head` whose attention weights tokens. Only cse opens such a model.
    """

    pooling: str
    first_layer_index: int
    dense: Sequence[tuple[Tensor, Tensor, str]]
    max_length: int
    origin: str
    convolutions: Convolutions | None = None
    template: Mapping[str, str] = field(default_factory=dict)
    prefix: Tensor | None = None
    positions: int | None = None
    diagonal: Mapping[str, int] | None = None

    @property
    def own(self) -> bool:
        """Whether only cse opens the model."""
        return bool(self.template) or any(one is not None for one in (self.prefix, self.positions, self.diagonal))


def export_encoder(model: Any, tokenizer: Any, layout: Layout, folder: Path) -> None:
    """Write model, tokenizer, pooling and model card."""
    with drafted(folder) as draft:
        _write_transformer(model, tokenizer, layout, draft)
        if layout.own:
            _write_own(layout, draft)
            return
        _write_module_settings(model, layout.max_length, draft)
        modules = ["Transformer", *_write_modules(model, layout, draft)]
        write_json(draft / MODULES, [_module(index, kind) for index, kind in enumerate(modules)])
        _write_settings(layout, draft)


TOKEN_POOLINGS = {
    "cls": "cls_token",
    "mean": "mean_tokens",
    "weighted_mean": "weightedmean_tokens",
    "last": "lasttoken",
}
"""Pooling → its name in the settings of sentence-transformers."""


def export_whole(
    model: Any,
    tokenizer: Any,
    pooling: str | None,
    settings: Mapping[str, Any],
    folder: Path,
    dense: Sequence[tuple[Tensor, Tensor, str]] = (),
) -> None:
    """Write a model whose settings `Layout` cannot describe, such as a decoder.

    Args:
        model: Transformers model.
        tokenizer: Tokenizer of the model.
        pooling: Pooling with which sentence-transformers gives the same embeddings, or None if only cse opens the
            directory.
        settings: Settings with which cse computes the embeddings.
        folder: Target directory, created if necessary.
        dense: Weight, bias and activation of the dense layers in evaluation.
    """
    with drafted(folder) as draft:
        _save(model, tokenizer, settings["max_length"], draft)
        write_json(draft / SETTINGS, {"schema_version": OWN_FORMAT, **settings})
        first = 1 if pooling is None else 2
        for number, (weight, bias, activation) in enumerate(dense, start=first):
            _write_dense(weight, bias, activation, draft / f"{number}_Dense")
        if pooling is None:
            (draft / "README.md").write_text(_OWN_CARD.format(**settings), encoding="utf-8")
            return
        _write_module_settings(model, settings["max_length"], draft)
        kinds = ["Transformer", "Pooling", *["Dense"] * len(dense)]
        write_json(draft / MODULES, [_module(index, kind) for index, kind in enumerate(kinds)])
        _write_pooling(TOKEN_POOLINGS[pooling], int(model.config.hidden_size), draft / "1_Pooling")
        write_card(draft, {**settings, "pooling": pooling, "head": "dense" if dense else "none"})


@contextmanager
def drafted(folder: Path) -> Iterator[Path]:
    """Yield a draft directory, and move its files to `folder` after the block ends without an error."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield draft
        _publish(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def append_dense(folder: Path, weight: Tensor, bias: Tensor, note: str) -> None:
    """Add a dense layer Wx + b to the end of an export.

    Args:
        folder: Directory from `export_encoder`.
        weight: Matrix W (out, width).
        bias: Vector b (out,).
        note: Description of the layer for the model card.
    """
    modules = json.loads((folder / MODULES).read_text(encoding="utf-8"))
    added = _module(len(modules), "Dense")
    _write_dense(weight, bias, "Identity", folder / added["path"])
    write_json(folder / MODULES, [*modules, added])
    settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    write_json(folder / SETTINGS, {**settings, "head": "dense"})
    write_card(folder, {**settings, "head": "dense"}, note)


def _module(index: int, kind: str) -> dict[str, Any]:
    path = f"{index}_{kind}" if index else ""
    of = {RELU: "Dense"}.get(kind, kind)
    return {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{of}"}


def _write_transformer(model: Any, tokenizer: Any, layout: Layout, folder: Path) -> None:
    before = model.config.output_hidden_states
    model.config.output_hidden_states = averaged(layout.pooling) is not None
    try:
        _save(model, tokenizer, layout.max_length, folder)
    finally:
        model.config.output_hidden_states = before


def _save(model: Any, tokenizer: Any, max_length: int, folder: Path) -> None:
    """Write model and tokenizer, with a padding token if the tokenizer has none."""
    quiet_transformers()
    before = tokenizer.model_max_length, tokenizer.pad_token
    tokenizer.model_max_length = max_length
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token or tokenizer.unk_token
    try:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    finally:
        tokenizer.model_max_length, tokenizer.pad_token = before


def _write_module_settings(model: Any, max_length: int, folder: Path) -> None:
    """Write the settings that sentence-transformers reads in addition to a transformers model."""
    write_json(
        folder / "sentence_bert_config.json",
        {"max_seq_length": max_length, "do_lower_case": False, "model_args": without_pooler(model.config)},
    )
    write_json(folder / "config_sentence_transformers.json", {"prompts": {}, "similarity_fn_name": "cosine"})


def _write_own(layout: Layout, folder: Path) -> None:
    """Write dense layers, prefix and settings for `registry.encoders.saved`."""
    from safetensors.torch import save_file

    for number, (weight, bias, activation) in enumerate(layout.dense, start=1):
        _write_dense(weight, bias, activation, folder / f"{number}_Dense")
    settings = {
        "schema_version": OWN_FORMAT,
        "format": TEMPLATED if layout.prefix is None else PREFIXED,
        **({} if layout.positions is None else {"format": PADDED, "positions": layout.positions}),
        **({} if layout.diagonal is None else {"format": DITTO, **layout.diagonal}),
        "pooling": layout.pooling,
        "first_layer_index": layout.first_layer_index,
        **layout.template,
        "max_length": layout.max_length,
        "origin": layout.origin,
    }
    write_json(folder / SETTINGS, settings)
    if layout.prefix is not None:
        save_file({"prefix": layout.prefix.detach().cpu().contiguous()}, folder / PREFIX)
    before = _TEMPLATE_NOTE.format(**settings) if layout.template else ""
    before += _ENDING_NOTE.format(**settings) if "end_with" in layout.template else ""
    after = "" if layout.prefix is None else _PREFIX_NOTE
    after += "" if layout.positions is None else _POSITIONS_NOTE.format(**settings)
    after += "" if layout.diagonal is None else _DIAGONAL_NOTE.format(**settings)
    (folder / "README.md").write_text(_CHANGED_CARD.format(before=before, after=after, **settings), encoding="utf-8")


def _write_modules(model: Any, layout: Layout, folder: Path) -> list[str]:
    """Write the modules after the transformer and return their kinds in order."""
    width = int(model.config.hidden_size)
    kinds = []
    if pair := averaged(layout.pooling, layout.first_layer_index):
        kinds.append("WeightedLayerPooling")
        _write_layer_mean(int(model.config.num_hidden_layers), width, pair, folder / f"{len(kinds)}_{kinds[-1]}")
    if layout.convolutions is not None:
        kinds.append(CNN)
        _write_convolutions(layout.convolutions, folder / f"{len(kinds)}_{CNN}")
        width = layout.convolutions.width
        if layout.convolutions.activation == "relu":
            kinds.append(RELU)
            about = {"module_input_name": "token_embeddings"}
            _write_dense(eye(width), zeros(width), "ReLU", folder / f"{len(kinds)}_{RELU}", about)
    kinds.append("Pooling")
    _write_pooling("cls_token" if layout.pooling == "cls" else "mean_tokens", width, folder / f"{len(kinds)}_Pooling")
    for weight, bias, activation in layout.dense:
        kinds.append("Dense")
        _write_dense(weight, bias, activation, folder / f"{len(kinds)}_Dense")
    return kinds


def _write_layer_mean(layers: int, width: int, pair: tuple[int, int], folder: Path) -> None:
    places = [place % (layers + 1) for place in pair]
    start = min(places)
    weights = [0.0] * (layers + 1 - start)
    for place in places:
        weights[place - start] += 1
    config = {"word_embedding_dimension": width, "layer_start": start, "num_hidden_layers": layers}
    _write_module(folder, config, {"layer_weights": tensor(weights)})


def _write_convolutions(convolutions: Convolutions, folder: Path) -> None:
    config = {
        "in_word_embedding_dimension": convolutions.states,
        "out_channels": convolutions.channels,
        "kernel_sizes": list(convolutions.windows),
    }
    weights = {key: value.detach().cpu().contiguous() for key, value in convolutions.state_dict().items()}
    _write_module(folder, config, weights, CNN_CONFIG)


def _write_pooling(mode: str, width: int, folder: Path) -> None:
    known = dict.fromkeys(("cls_token", "mean_tokens", "max_tokens", mode), False) | {mode: True}
    modes = {f"pooling_mode_{key}": on for key, on in known.items()}
    config = {"word_embedding_dimension": width, **modes, "pooling_mode_mean_sqrt_len_tokens": False}
    _write_module(folder, config, {})


def _write_dense(
    weight: Tensor, bias: Tensor, activation: str, folder: Path, more: Mapping[str, str] = MappingProxyType({})
) -> None:
    home = "linear" if activation == "Identity" else "activation"
    config = {
        "in_features": weight.shape[1],
        "out_features": weight.shape[0],
        "bias": True,
        "activation_function": f"torch.nn.modules.{home}.{activation}",
        **more,
    }
    values = {"linear.weight": weight, "linear.bias": bias}
    _write_module(folder, config, {key: value.detach().cpu().contiguous() for key, value in values.items()})


def _write_module(folder: Path, config: dict[str, Any], weights: dict[str, Tensor], name: str = "config.json") -> None:
    from safetensors.torch import save_file

    folder.mkdir()
    write_json(folder / name, config)
    if weights:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _write_settings(layout: Layout, folder: Path) -> None:
    settings: dict[str, Any] = {
        "schema_version": 1,
        "pooling": layout.pooling,
        "first_layer_index": layout.first_layer_index,
        "head": "dense" if layout.dense else "none",
        "max_length": layout.max_length,
        "origin": layout.origin,
    }
    if layout.convolutions is not None:
        settings["activation"] = layout.convolutions.activation
    write_json(folder / SETTINGS, settings)
    write_card(folder, settings, "" if layout.convolutions is None else PADDING_NOTE)


def write_card(folder: Path, settings: Mapping[str, Any], note: str = "") -> None:
    """Write the model card of an export for sentence-transformers."""
    text = _CARD.format(**settings)
    (folder / "README.md").write_text(f"{text}\n{note}\n" if note else text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Write indented JSON."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _publish(draft: Path, folder: Path) -> None:
    """Move the draft's files to `folder`, and replace the subdirectories of an earlier export."""
    draft.chmod(0o755)
    folder.mkdir(exist_ok=True)
    for child in draft.iterdir():
        target = folder / child.name
        if target.is_dir():
            shutil.rmtree(target)
        os.replace(child, target)  # noqa: PTH105 - the rename that replaces


_CARD = """---
pipeline_tag: sentence-similarity
library_name: sentence-transformers
tags: [sentence-transformers, feature-extraction, cse]
---
# Sentence encoder

Trained by [cse](https://pypi.org/project/cse-registry/) from `{origin}`. Compare its embeddings by cosine.
Pooling `{pooling}`, head `{head}`, at most {max_length} tokens.

```python
from sentence_transformers import SentenceTransformer
embeddings = SentenceTransformer("this/directory").encode(["A sentence."])
```

`transformers.AutoModel.from_pretrained(DIRECTORY, add_pooling_layer=False)` loads the same weights without the pooling;
`cse evaluate DIRECTORY` scores it.
"""

_OWN_CARD = """---
tags: [cse]
---
# Sentence encoder

Trained by [cse](https://pypi.org/project/cse-registry/) from `{origin}`. Only cse computes its embeddings, with the
settings in `cse.json`: `cse evaluate DIRECTORY`. transformers loads the weights, without the attention setting.
"""

_CHANGED_CARD = """---
tags: [cse]
---
# Sentence encoder

Trained by [cse](https://pypi.org/project/cse-registry/) from `{origin}`. {before}{after}Pooling `{pooling}`, at most
{max_length} tokens. Compare its embeddings by cosine.

`cse evaluate DIRECTORY` scores it. The directory is a transformers model. sentence-transformers ignores these settings
and would give other embeddings.
"""

_TEMPLATE_NOTE = "Each sentence is put into the template `{template}`, which does not count toward lengths.\n"

_ENDING_NOTE = "Before that, the rule `end_with = {end_with}` adds a full stop to a sentence without a final one.\n"

_PREFIX_NOTE = "Each attention has learned keys and values before those of the sentence, from `prefix.safetensors`.\n"

_DIAGONAL_NOTE = "Tokens are weighted by their attention to themselves in block {block}, head {head}.\n"

_POSITIONS_NOTE = "The mean covers {positions} positions, real tokens and padding.\n"
