"""A stranger's model directory is opened or refused in one message: nothing in it is run, nothing outside it read."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from registry.encoders.saved import open_encoder
from registry.errors import CseError
from registry.resources.models import complete, load_tokenizer
from tests.registry.strange_models import STRANGE, TRACE, whole

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


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_the_reason_is_told(tmp_path: Path) -> None:
    for name, says in {
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
    }.items():
        folder = tmp_path / name / "model"
        folder.parent.mkdir()
        whole(folder)
        STRANGE[name](folder)
        with pytest.raises(CseError) as told:
            open_encoder(str(folder))
        assert says in told.value.message, told.value.message
