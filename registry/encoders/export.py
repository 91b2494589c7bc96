"""Export of an encoder to a directory that transformers and sentence-transformers load.

The layout is the classic one of sentence-transformers, which release 6 still reads. `cse.json` contains the same
settings in one file for `registry.encoders.saved`. Averages of two layers are written as a weighted mean of layers. A
template that is only text before the sentence is the default prompt of sentence-transformers, which counts its tokens.
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
from registry.poolings import averaged
from registry.prompts import SIDES, Prompts
from registry.resources.models import THROUGH_CSE, loading_options, quiet_transformers

MODULES = "modules.json"
"""File that makes a directory a sentence-transformers model."""

SETTINGS = "cse.json"
"""File with the settings for the embeddings of an export."""

CNN, CNN_CONFIG, RELU = "CNN", "cnn_config.json", "ReLU"
"""Names of the convolution module, its settings file, and the ReLU module after it."""

NORMALIZE = "Normalize"

PADDING_NOTE = (
    "The states of tokens are convolved before the pooling. Releases of sentence-transformers up to 6.2 also convolve "
    "padding: use `batch_size=1` with them."
)
"""Note in the model card of an encoder with convolutions."""

OWN_FORMAT = 2
"""Schema version of `cse.json` in a directory that only cse opens."""

PREFIX = "prefix.safetensors"


@dataclass(frozen=True)
class Layout:
    """Settings with which the exported model computes sentence embeddings.

    Args:
        pooling: Pooling in evaluation.
        dense: Weight, bias and activation of the dense layers in evaluation.
        max_length: Maximum number of tokens, special tokens included.
        origin: Model before the training, for the model card.
        loadable: Whether sentence-transformers gives the same embeddings. Otherwise, only cse opens the directory.
        first_layer_index: Index of the first layer in "first_last".
        convolutions: Convolutions of the last layer's states before the pooling.
        own: Format of the encoder, and parameters that sentence-transformers cannot express, such as a template. Its
            `settings`, if there are any, contain the pooling.
        prefix: Learned keys and values of every block.
        prompts: Prompts of the encoder.
        prompt: Template as a prompt, if sentence-transformers gives the same embeddings.
        prompt_length: Number of its tokens.
    """

    pooling: str
    dense: Sequence[tuple[Tensor, Tensor, str]]
    max_length: int
    origin: str
    loadable: bool = True
    first_layer_index: int = 0
    convolutions: Convolutions | None = None
    own: Mapping[str, Any] = field(default_factory=dict)
    prefix: Tensor | None = None
    prompts: Prompts = field(default_factory=Prompts)
    prompt: str = ""
    prompt_length: int = 0


TOKEN_POOLINGS = {
    "cls": "cls_token",
    "mean": "mean_tokens",
    "weighted_mean": "weightedmean_tokens",
    "last": "lasttoken",
}
"""Pooling → its name in the settings of sentence-transformers."""


def export_transformer(model: Any, tokenizer: Any, layout: Layout, folder: Path) -> None:
    """Write model, tokenizer, settings and model card, and the modules of sentence-transformers if it can load them."""
    described = "settings" in layout.own
    pooling = {} if described else {"pooling": layout.pooling, "first_layer_index": layout.first_layer_index}
    settings = {**layout.own, **pooling, "max_length": layout.max_length, "origin": layout.origin}
    before = model.config.output_hidden_states
    longest = layout.max_length + (layout.prompt_length if layout.loadable else 0)
    with drafted(folder) as draft:
        model.config.output_hidden_states = before if described else averaged(layout.pooling) is not None
        try:
            _save(model, tokenizer, longest, draft)
        finally:
            model.config.output_hidden_states = before
        if not layout.loadable:
            about = "".join(f"- {key} = {value}\n" for key, value in settings.items())
            write_own(draft, settings, f"Trained by cse. {_IGNORED}:\n\n{about}", layout.prompts)
            for number, layer in enumerate(layout.dense, start=1):
                _write_dense(*layer, draft / f"{number}_Dense")
            if layout.prefix is not None:
                write_weights(draft / PREFIX, {"prefix": layout.prefix})
            return
        lengths = {"max_seq_length": longest, "do_lower_case": False}
        write_json(draft / "sentence_bert_config.json", {**lengths, "model_args": loading_options(model.config)})
        prompts = layout.prompts.after(layout.prompt)
        prompts.write(draft)
        modules = ["Transformer", *_write_modules(model, layout, draft)]
        write_json(draft / MODULES, [_module(index, kind) for index, kind in enumerate(modules)])
        head = {"head": "dense" if layout.dense else "none"}
        if not layout.own:
            settings = {**settings, **head}
        if layout.convolutions is not None:
            settings["activation"] = layout.convolutions.activation
        write_json(draft / SETTINGS, {"schema_version": OWN_FORMAT if layout.own else 1, **settings})
        note = "" if layout.convolutions is None else PADDING_NOTE
        write_card(draft, {**settings, "pooling": layout.pooling, **head, "max_length": longest}, prompts, note)


@contextmanager
def drafted(folder: Path) -> Iterator[Path]:
    """Yield a draft directory, and move its files to `folder` after the block ends without an error.

    They replace the files and subdirectories of an earlier export.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield draft
        draft.chmod(0o755)
        folder.mkdir(exist_ok=True)
        for child in draft.iterdir():
            target = folder / child.name
            if target.is_dir():
                shutil.rmtree(target)
            os.replace(child, target)  # noqa: PTH105 - the rename that replaces
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def append_dense(folder: Path, weight: Tensor, bias: Tensor, note: str) -> None:
    """Add a dense layer Wx + b to the end of an export."""
    modules = json.loads((folder / MODULES).read_text(encoding="utf-8"))
    added = _module(len(modules), "Dense")
    _write_dense(weight, bias, "Identity", folder / added["path"])
    write_json(folder / MODULES, [*modules, added])
    settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    write_json(folder / SETTINGS, {**settings, "head": "dense"})
    write_card(folder, {**settings, "head": "dense"}, Prompts.read(folder), note)


def append_normalization(folder: Path) -> None:
    """Add the scaling to length 1 to the end of an export."""
    modules = json.loads((folder / MODULES).read_text(encoding="utf-8"))
    added = _module(len(modules), NORMALIZE)
    (folder / added["path"]).mkdir(exist_ok=True)
    write_json(folder / MODULES, [*modules, added])


def _module(index: int, kind: str) -> dict[str, Any]:
    path = f"{index}_{kind}" if index else ""
    of = {RELU: "Dense"}.get(kind, kind)
    return {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{of}"}


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


def write_own(folder: Path, settings: Mapping[str, Any], about: str, prompts: Prompts) -> None:
    """Write settings, prompts and model card of a directory that only cse opens, and the name of the module that does.

    sentence-transformers imports the module only with `trust_remote_code=True`. It fails otherwise, instead of reading
    the directory as another model.
    """
    write_json(folder / SETTINGS, {"schema_version": OWN_FORMAT, **settings})
    prompts.write(folder)
    write_json(folder / MODULES, [{"idx": 0, "name": "0", "path": "", "type": THROUGH_CSE}])
    text = _OWN_CARD.format(about=about, usage=usage("this/directory", prompts, native=False))
    (folder / "README.md").write_text(text, encoding="utf-8")


def _write_modules(model: Any, layout: Layout, folder: Path) -> list[str]:
    """Write the modules after the transformer and return their kinds in order."""
    width = int(model.config.hidden_size)
    kinds = []
    config: dict[str, Any]
    if pair := averaged(layout.pooling, layout.first_layer_index):
        kinds.append("WeightedLayerPooling")
        layers = int(model.config.num_hidden_layers)
        places = [place % (layers + 1) for place in pair]
        start = min(places)
        weights = [float(places.count(place)) for place in range(start, layers + 1)]
        config = {"word_embedding_dimension": width, "layer_start": start, "num_hidden_layers": layers}
        _write_module(folder / f"{len(kinds)}_{kinds[-1]}", config, {"layer_weights": tensor(weights)})
    if layout.convolutions is not None:
        kinds.append(CNN)
        made = layout.convolutions
        config = {
            "in_word_embedding_dimension": made.states,
            "out_channels": made.channels,
            "kernel_sizes": list(made.windows),
        }
        _write_module(folder / f"{len(kinds)}_{CNN}", config, made.state_dict(), CNN_CONFIG)
        width = made.width
        if layout.convolutions.activation == "relu":
            kinds.append(RELU)
            about = {"module_input_name": "token_embeddings"}
            _write_dense(eye(width), zeros(width), "ReLU", folder / f"{len(kinds)}_{RELU}", about)
    kinds.append("Pooling")
    mode = TOKEN_POOLINGS.get(layout.pooling, "mean_tokens")
    known = dict.fromkeys(("cls_token", "mean_tokens", "max_tokens", mode), False) | {mode: True}
    modes = {f"pooling_mode_{key}": on for key, on in known.items()}
    config = {"word_embedding_dimension": width, **modes, "pooling_mode_mean_sqrt_len_tokens": False}
    _write_module(folder / f"{len(kinds)}_Pooling", config, {})
    for weight, bias, activation in layout.dense:
        kinds.append("Dense")
        _write_dense(weight, bias, activation, folder / f"{len(kinds)}_Dense")
    return kinds


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
    _write_module(folder, config, {"linear.weight": weight, "linear.bias": bias})


def _write_module(
    folder: Path, config: dict[str, Any], weights: Mapping[str, Tensor], name: str = "config.json"
) -> None:
    folder.mkdir()
    write_json(folder / name, config)
    if weights:
        write_weights(folder / "model.safetensors", weights)


def write_weights(file: Path, weights: Mapping[str, Tensor], *, marked: bool = True) -> None:
    """Write tensors to a file of safetensors. `marked` adds the format of the tensors, as transformers writes it."""
    from safetensors.torch import save_file

    copied = {name: value.detach().cpu().contiguous() for name, value in weights.items()}
    save_file(copied, file, metadata={"format": "pt"} if marked else None)


def write_card(folder: Path, settings: Mapping[str, Any], prompts: Prompts, note: str = "") -> None:
    """Write the model card of an export for sentence-transformers."""
    text = _CARD.format(**settings, usage=usage("this/directory", prompts))
    (folder / "README.md").write_text(f"{text}\n{note}\n" if note else text, encoding="utf-8")


def usage(name: str, prompts: Prompts, *, native: bool = True) -> str:
    """Return the part of a model card that shows how sentence-transformers encodes, with which prompts.

    `native`: sentence-transformers opens the model without cse.
    """
    opened = f'SentenceTransformer("{name}"{"" if native else ", trust_remote_code=True"})'
    sides = [side for side in SIDES if prompts.choose(side)[1] != prompts.choose()[1]]
    if sides:
        calls = [f"model = {opened}", 'embeddings = model.encode(["A sentence."])']
        calls += [f'embeddings = model.encode_{side}(["A {side}."])' for side in sides]
    else:
        calls = [f'embeddings = {opened}.encode(["A sentence."])']
    lines = ["```python", "from sentence_transformers import SentenceTransformer", *calls, "```"]
    if prompts.named:
        lines += ["", "Text before a sentence, by `prompt_name`:", ""]
        lines += [f"- `{name}`: `{text!r}`" for name, text in prompts.named.items()]
    for note in prompts.notes:
        lines += ["", f"{note}."]
    return "\n".join(lines)


def write_json(path: Path, content: Any) -> None:
    """Write indented JSON."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


_CARD = """---
pipeline_tag: sentence-similarity
library_name: sentence-transformers
tags: [sentence-transformers, feature-extraction, cse]
---
# Sentence encoder

Trained by cse from `{origin}`. Compare its embeddings by cosine.
Pooling `{pooling}`, head `{head}`, at most {max_length} tokens.

{usage}

`transformers.AutoModel.from_pretrained(DIRECTORY, add_pooling_layer=False)` loads the same weights without the pooling;
`cse evaluate DIRECTORY` scores it.
"""

_OWN_CARD = """---
tags: [cse]
---
# Sentence encoder

{about}

Only cse opens this directory: `cse evaluate DIRECTORY`. If cse is
installed, sentence-transformers computes the embeddings through it:

{usage}
"""

_IGNORED = "transformers loads the model, but ignores these settings and would give other embeddings"
