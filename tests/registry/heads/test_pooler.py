import math

import pytest
import torch
from safetensors.torch import load_file, save_file

from registry.encoders.transformer import TransformerEncoder
from registry.heads.pooler import Pooler
from registry.heads.projection import Projection
from registry.testing.materials import WidthOnly
from tests.support.errors import refuses
from tests.support.tiny import tiny_albert, tiny_bert, tiny_roberta


def test_worked_by_hand():
    for activation, bend in (("none", lambda x: x), ("tanh", math.tanh)):
        head = Pooler(activation, "random")
        assert head.fit(2, WidthOnly(2)) == 2
        head.load_state_dict(
            {"linear.weight": torch.tensor([[1.0, 2.0], [0.0, -1.0]]), "linear.bias": torch.tensor([0.5, 0.0])}
        )
        out = head(torch.tensor([[0.1, 0.2]]), ())[0].tolist()
        assert out == pytest.approx([bend(1.0), bend(-0.2)])
        weight, bias, name = head.dense()
        assert (weight is head.linear.weight, bias is head.linear.bias) == (True, True)
        assert name == {"none": "Identity", "tanh": "Tanh"}[activation]


@pytest.mark.parametrize("make", [tiny_bert, tiny_roberta, tiny_albert])
def test_starts_from_the_checkpoints_pooler(tmp_path, make):
    folder = make(tmp_path)
    encoder = TransformerEncoder(str(folder))
    encoder.attach({"pooler": Pooler()})
    stored = {name: value for name, value in load_file(folder / "model.safetensors").items() if "pooler" in name}
    (weight,) = (value for name, value in stored.items() if name.endswith("weight"))
    (bias,) = (value for name, value in stored.items() if name.endswith("bias"))
    assert torch.equal(encoder.heads["pooler"].linear.weight, weight)
    assert torch.equal(encoder.heads["pooler"].linear.bias, bias)
    assert encoder.heads["pooler"].linear.weight.requires_grad


def test_finds_it_under_a_models_prefix_and_in_the_old_format(tmp_path):
    """As the hub's bert-base-uncased names it, in both kinds of file."""
    folder = tiny_bert(tmp_path)
    renamed = {f"bert.{name}": value for name, value in load_file(folder / "model.safetensors").items()}
    encoder = WidthOnly(16)
    encoder.model = str(folder)
    for kind in ("safetensors", "bin"):
        (folder / "model.safetensors").unlink(missing_ok=True)
        if kind == "bin":
            torch.save(renamed, folder / "pytorch_model.bin")
        else:
            save_file(renamed, folder / "model.safetensors")
        head = Pooler()
        head.fit(16, encoder)
        assert torch.equal(head.linear.weight, renamed["bert.pooler.dense.weight"])


@pytest.mark.slow
def test_what_has_no_pooler_or_another_width_is_refused_with_the_way_out(tmp_path):
    folder = tiny_bert(tmp_path)
    rest = {n: v for n, v in load_file(folder / "model.safetensors").items() if "pooler" not in n}
    save_file(rest, folder / "model.safetensors", metadata={"format": "pt"})
    encoder = TransformerEncoder(str(folder))
    with refuses("heads.no_pooler", str(folder), 'initial = "random"'):
        encoder.attach({"pooler": Pooler()})
    encoder.attach({"pooler": Pooler(initial="random")})
    assert encoder.dim == 16
    with refuses("heads.no_checkpoint", "WidthOnly"):
        Pooler().fit(4, WidthOnly(4))
    encoder = TransformerEncoder(str(tiny_bert(tmp_path)))
    with refuses("heads.width_mismatch", 16, 24):
        encoder.attach({"projection": Projection(width=24), "pooler": Pooler()})
