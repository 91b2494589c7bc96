"""An encoder as a directory that transformers and sentence-transformers load unchanged.

The layout is the classic one of sentence-transformers, which release 6 still reads. `cse.json` beside it says the same
in one place, for `registry.encoders.saved`. Averages of two layers are written as a weighted mean of layers, so every
pooling has its equivalent there.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import Tensor, eye, tensor, zeros

from registry.encoders.convolutions import Convolutions
from registry.encoders.pooling import Pooling, averaged
from registry.models import quiet_transformers, without_pooler

MODULES = "modules.json"
"""File of an export by which sentence-transformers knows it."""

SETTINGS = "cse.json"
"""File of an export that says how its sentence vectors are made."""

CNN, CNN_CONFIG, RELU = "CNN", "cnn_config.json", "ReLU"
"""Module of convolutions, its settings, and the module of a ReLU behind them."""

PADDING_NOTE = (
    "The states of tokens go through convolutions before they are averaged. Releases of sentence-transformers up to "
    "6.2 let padding into them: encode with `batch_size=1` there."
)
"""For the model card of an encoder with convolutions."""

OWN_FORMAT = 2
"""Schema version of that file in a directory that only cse opens."""


@dataclass(frozen=True)
class Layout:
    """How the exported model makes a sentence vector.

    Args:
        pooling: The pooling used at evaluation.
        first_layer_index: What "first" means in "first_last".
        dense: Weight, bias and activation of the dense layers kept at evaluation.
        max_length: Tokens, specials included, that loaders truncate at.
        origin: Model the training started from, for the model card.
        convolutions: What the last layer's states go through before they are pooled.
    """

    pooling: Pooling
    first_layer_index: int
    dense: Sequence[tuple[Tensor, Tensor, str]]
    max_length: int
    origin: str
    convolutions: Convolutions | None = None


def export_encoder(model: Any, tokenizer: Any, layout: Layout, folder: Path) -> None:
    """Write model, tokenizer, pooling and card."""
    with drafted(folder) as draft:
        _write_transformer(model, tokenizer, layout, draft)
        modules = ["Transformer", *_write_modules(model, layout, draft)]
        write_json(draft / MODULES, [_module(index, kind) for index, kind in enumerate(modules)])
        _write_settings(layout, draft)


@contextmanager
def drafted(folder: Path) -> Iterator[Path]:
    """Yield a folder to write to; its files appear in `folder` once the block has ended without an error."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield draft
        _publish(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def append_dense(folder: Path, weight: Tensor, bias: Tensor, note: str) -> None:
    """Add Wx + b behind an export, as one more dense layer.

    Args:
        folder: Written by `export_encoder`.
        weight: W, (out, width).
        bias: b, (out,).
        note: What the layer is, for the model card.
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
    quiet_transformers()
    before = model.config.output_hidden_states, tokenizer.model_max_length
    model.config.output_hidden_states = averaged(layout.pooling) is not None
    tokenizer.model_max_length = layout.max_length
    try:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    finally:
        model.config.output_hidden_states, tokenizer.model_max_length = before
    write_json(
        folder / "sentence_bert_config.json",
        {"max_seq_length": layout.max_length, "do_lower_case": False, "model_args": without_pooler(model.config)},
    )
    write_json(folder / "config_sentence_transformers.json", {"prompts": {}, "similarity_fn_name": "cosine"})


def _write_modules(model: Any, layout: Layout, folder: Path) -> list[str]:
    """Write what follows the transformer; return the kinds of modules in order."""
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
            _write_relu(width, folder / f"{len(kinds)}_{RELU}")
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


def _write_relu(width: int, folder: Path) -> None:
    """Write a ReLU of the token vectors: a dense layer that multiplies by one."""
    _write_dense(eye(width), zeros(width), "ReLU", folder, {"module_input_name": "token_embeddings"})


def _write_pooling(mode: str, width: int, folder: Path) -> None:
    modes = {f"pooling_mode_{known}": known == mode for known in ("cls_token", "mean_tokens", "max_tokens")}
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
    """Write the model card of an export that sentence-transformers loads."""
    text = _CARD.format(**settings)
    (folder / "README.md").write_text(f"{text}\n{note}\n" if note else text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Write `content` for people to read too."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _publish(draft: Path, folder: Path) -> None:
    """Move the draft's files over those of `folder`; sub-folders of an earlier export are replaced."""
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

Trained by [cse](https://pypi.org/project/cse-registry/) from `{origin}`. Compare its vectors by cosine.
Pooling `{pooling}`, head `{head}`, at most {max_length} tokens.

```python
from sentence_transformers import SentenceTransformer
vectors = SentenceTransformer("this/directory").encode(["A sentence."])
```

`transformers.AutoModel.from_pretrained(DIRECTORY, add_pooling_layer=False)` loads the same weights without the pooling;
`cse evaluate DIRECTORY` scores it.
"""
