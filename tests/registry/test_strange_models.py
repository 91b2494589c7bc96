"""A stranger's model directory is opened or refused in one message: nothing in it is run, nothing outside it read."""

import json
import pickle
import shutil
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from registry.encoders.saved import open_encoder
from registry.errors import CseError
from registry.resources.models import PRETRAINED, complete, load_tokenizer
from tests.support.versions import needs

DEEP = "[" * 100_000 + "]" * 100_000
TRACE = "executed"


class Program:
    """Makes a file when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Path.touch, (self.trace,)


def whole(folder: Path) -> None:
    shutil.copytree(PRETRAINED / "mini_en", folder)


def settings(folder: Path, file: str = "config.json", **changed: Any) -> None:
    path = folder / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))


def changed(file: str = "config.json", **values: Any) -> Callable[[Path], None]:
    return lambda folder: settings(folder, file, **values)


def text(file: str, content: str) -> Callable[[Path], None]:
    return lambda folder: (folder / file).write_text(content) and None


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def plain_pickle(folder: Path) -> None:
    no_weights(folder)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Program(folder / TRACE)))


def zipped_pickle(folder: Path) -> None:
    no_weights(folder)
    torch.save({"embeddings.word_embeddings.weight": Program(folder / TRACE)}, folder / "pytorch_model.bin")


def zip_that_is_none(folder: Path) -> None:
    no_weights(folder)
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(Program(folder / TRACE)))


def index(target: Any) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
        content = {"metadata": {}, "weight_map": target}
        (folder / "model.safetensors.index.json").write_text(json.dumps(content))

    return make


def deep_index(folder: Path) -> None:
    no_weights(folder)
    (folder / "model.safetensors.index.json").write_text(f'{{"weight_map": {DEEP}}}')


def truncated(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:5_000])


def long_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\xff" * 8 + b"{}")


def link_in_a_circle(folder: Path) -> None:
    no_weights(folder)
    (folder / "model.safetensors").symlink_to("model.safetensors")


def program(folder: Path) -> None:
    (folder / "modeling.py").write_text(f"open({str(folder / TRACE)!r}, 'w')\n")
    settings(folder, auto_map={"AutoConfig": "modeling.C", "AutoModel": "modeling.M"}, model_type="unheard_of")


def adapter(folder: Path) -> None:
    """Name another base: PEFT 0.21 would add the adapter to the weights beside it, and without PEFT nothing would."""
    content = {"peft_type": "LORA", "r": 2, "target_modules": ["query"], "base_model_name_or_path": "nobody/base"}
    (folder / "adapter_config.json").write_text(json.dumps(content))
    layer = "base_model.model.encoder.layer.0.attention.self.query"
    width = json.loads((folder / "config.json").read_text())["hidden_size"]
    weights = {f"{layer}.lora_A.weight": torch.ones(2, width), f"{layer}.lora_B.weight": torch.ones(width, 2)}
    save_file(weights, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def tokenizer_program(folder: Path) -> None:
    (folder / "tokenizing.py").write_text(f"open({str(folder / TRACE)!r}, 'w')\n")
    named = {"tokenizer_class": "Unheard", "auto_map": {"AutoTokenizer": ["tokenizing.T", None]}}
    settings(folder, "tokenizer_config.json", **named)
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").unlink()
    (folder / "vocab.json").write_text("{}")


STRANGE: dict[str, Callable[[Path], None]] = {
    "plain pickle": plain_pickle,
    "zipped pickle": zipped_pickle,
    "zip that is none": zip_that_is_none,
    "index outside": index({"embeddings.word_embeddings.weight": "../outside.safetensors"}),
    "index absolute": index({"embeddings.word_embeddings.weight": "/etc/passwd"}),
    "index of a list": index(["a"]),
    "index too deep": deep_index,
    "weights truncated": truncated,
    "weights with a header of 2^64 bytes": long_header,
    "weights in a circle": link_in_a_circle,
    "program": program,
    "program of a tokenizer": tokenizer_program,
    "adapter": adapter,
    "no heads": changed(num_attention_heads=0),
    "negative heads": changed(num_attention_heads=-1),
    "heads of text": changed(num_attention_heads="many"),
    "heads that do not divide": changed(num_attention_heads=5),
    "width of 10^12": changed(hidden_size=10**12),
    "10^9 layers": changed(num_hidden_layers=10**9),
    "vocabulary of none": changed(vocab_size=0),
    "no positions": changed(max_position_embeddings=0),
    "dropout of 2": changed(hidden_dropout_prob=2.0),
    "padding far away": changed(pad_token_id=10**6),
    "unknown activation": changed(hidden_act="gelu_of_nobody"),
    "unknown dtype": changed(dtype="float7"),
    "dtype of a number": changed(dtype=16),
    "unknown architecture": changed(model_type="unheard_of"),
    "architecture of a number": changed(model_type=3),
    "quantized by nobody": changed(quantization_config={"quant_method": "nobody"}),
    "attention by nobody": changed(_attn_implementation="nobody"),
    "another's shape": changed(intermediate_size=64),
    "configuration of a list": text("config.json", "[]"),
    "configuration too deep": text("config.json", f'{{"model_type": "bert", "x": {DEEP}}}'),
    "configuration of bytes": lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe\0") and None,
    "tokenizer too deep": text("tokenizer.json", f'{{"version": "1.0", "model": {DEEP}}}'),
    "tokenizer of a list": text("tokenizer.json", "[]"),
    "tokenizer of an unknown kind": text("tokenizer.json", '{"version": "1.0", "model": {"type": "Nobody"}}'),
    "tokenizer's settings too deep": text("tokenizer_config.json", DEEP),
    "tokenizer of an unknown class": changed("tokenizer_config.json", tokenizer_class="NobodysTokenizer"),
    "tokenizer with a length of text": changed("tokenizer_config.json", model_max_length="long"),
    "tokenizer with a pad token of a list": changed("tokenizer_config.json", pad_token=[1]),
    "modules of a number": text("modules.json", "3"),
    "modules outside": text(
        "modules.json",
        '[{"idx": 0, "name": "0", "path": "../..", "type": "sentence_transformers.models.Transformer"}]',
    ),
    "our settings of a list": text("cse.json", "[]"),
    "our settings of an unknown form": text("cse.json", '{"format": ["x"], "schema_version": 1}'),
}


HARMLESS = {"quantized by nobody", "attention by nobody", "dtype of a number", "tokenizer of an unknown class"}
"""What transformers passes over, and so do we."""
CPU_SECONDS = 10.0


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("name", STRANGE)
def test_it_is_opened_or_refused_in_one_message(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    whole(folder)
    STRANGE[name](folder)
    began, refused = time.process_time(), []
    for open_it in (
        lambda: open_encoder(str(folder)),
        lambda: load_tokenizer(str(folder)),
        lambda: complete(folder),
    ):
        try:
            open_it()
        except CseError as error:
            refused.append(error)
    assert bool(refused) == (name not in HARMLESS)
    for error in refused:
        assert error.exit_code in (2, 3)
        assert str(folder) in error.message or "the architecture 'BertModel'" in error.message
        assert len(error.message) < 600
        assert "\n" not in error.message
    assert time.process_time() - began < CPU_SECONDS
    assert not (folder / TRACE).exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize(
    ("name", "says"),
    {
        "plain pickle": "is a pickle",
        "zipped pickle": "is a pickle",
        "index outside": "'../outside.safetensors'",
        "no heads": "ZeroDivisionError",
        "heads of text": "num_attention_heads",
        "unknown activation": "KeyError 'gelu_of_nobody'",
        "unknown dtype": "float7",
        "10^9 layers": "num_hidden_layers is 1000000000",
        "configuration too deep": "recursion",
        "adapter": "adapter_config.json",
        "modules outside": "'../..'",
    }.items(),
)
def test_the_reason_is_told(tmp_path: Path, name: str, says: str) -> None:
    if name == "heads of text":
        needs("checked types in config.json")
    folder = tmp_path / "model"
    whole(folder)
    STRANGE[name](folder)
    with pytest.raises(CseError) as told:
        open_encoder(str(folder))
    assert says in told.value.message, told.value.message
