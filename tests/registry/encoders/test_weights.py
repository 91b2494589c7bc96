"""Weights in half precision, low-rank matrices next to them, and activations that are computed again."""

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel

from registry.encoders.saved import open_encoder
from registry.encoders.transformer import TransformerEncoder
from tests.registry.encoders.test_every_family import contrast
from tests.registry.encoders.vectors import tokens_of
from tests.support.accelerators import pretend
from tests.support.errors import refuses
from tests.support.families import tiny


@pytest.fixture
def llama(tmp_path):
    return str(tiny(tmp_path, "llama"))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "modernbert", "llama"])
def test_weights_in_bf16_give_nearly_the_same_vectors(tmp_path, family):
    folder = str(tiny(tmp_path, family))
    exact, half = (TransformerEncoder(folder, "mean", dtype=dtype).eval() for dtype in (None, "bf16"))
    tokens = tokens_of(exact)
    assert {weight.dtype for weight in half.parameters()} == {torch.bfloat16}
    for vectors in (half.encode_for_eval(tokens), half.encode(tokens, half.embed(tokens)).sentence):
        assert vectors.dtype == torch.float32
        assert torch.cosine_similarity(vectors, exact.encode_for_eval(tokens)).min() > 0.98


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_low_rank_matrices_are_single_precision_and_all_that_is_trained(llama, dtype):
    pytest.importorskip("peft", reason="peft is not installed (extra 'llm')")
    encoder = TransformerEncoder(llama, "mean", dtype=dtype, lora_rank=2, checkpointing=True)
    tokens = tokens_of(encoder)
    trained = {name: weight for name, weight in encoder.named_parameters() if weight.requires_grad}
    assert all("lora_" in name and weight.dtype == torch.float32 for name, weight in trained.items())
    optimizer = torch.optim.AdamW(trained.values(), lr=1e-2)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = contrast(encoder.encode(tokens, encoder.embed(tokens)).sentence)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_an_export_has_the_merged_weights_and_an_adapter_of_the_original_model_and_bf16_stays(llama, tmp_path):
    peft = pytest.importorskip("peft", reason="peft is not installed (extra 'llm')")
    encoder = TransformerEncoder(llama, "mean", lora_rank=2, lora_alpha=4)
    with torch.no_grad():
        for name, weight in encoder.named_parameters():
            if "lora_B" in name:
                weight.normal_()
    encoder.export(tmp_path / "out", 24)
    tokens = tokens_of(encoder)
    adapted = peft.PeftModel.from_pretrained(AutoModel.from_pretrained(llama), tmp_path / "out" / "adapter")
    states = adapted(input_ids=tokens.ids, attention_mask=tokens.mask).last_hidden_state
    expected = (states * tokens.mask[..., None]).sum(1) / tokens.mask.sum(1, keepdim=True)
    opened = open_encoder(str(tmp_path / "out"))[0]
    for one in (encoder, opened):  # the encoder itself goes on being trained
        torch.testing.assert_close(one.encode_for_eval(tokens), expected, rtol=0, atol=1e-5)
    merged = load_file(tmp_path / "out" / "model.safetensors")
    assert set(merged) == set(AutoModel.from_pretrained(tmp_path / "out").state_dict())
    TransformerEncoder(llama, "mean", dtype="bf16").export(tmp_path / "out", 24)
    assert {weight.dtype for weight in load_file(tmp_path / "out" / "model.safetensors").values()} == {torch.bfloat16}


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "modernbert", "llama"])
def test_activations_computed_again_have_the_same_gradient(tmp_path, family):
    found = []
    for checkpointing in (None, True):
        encoder = TransformerEncoder(str(tiny(tmp_path, family)), "mean", checkpointing=checkpointing)
        tokens = tokens_of(encoder)
        calls = []
        block = encoder.backbone.encoder.layer[0] if family == "bert" else encoder.backbone.layers[0]
        next(block.children()).register_forward_hook(lambda *_, calls=calls: calls.append(1))
        torch.manual_seed(0)
        contrast(encoder.encode(tokens, encoder.embed(tokens)).sentence).backward()
        found.append([weight.grad for weight in encoder.parameters()])
        passes = len(calls)
    assert passes == 2
    if family != "bert":  # whose dropout draws other numbers in packed rows
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("values", "code", "named"),
    [
        ({"dtype": "4bit"}, "encoders.lora_without_rank", "lora_rank"),
        ({"dtype": "8bit", "lora_rank": 2}, "models.unsupported_weights", "CUDA"),
        ({"checkpointing": True, "drophead": 0.1}, "encoders.no_checkpointing", "checkpointing"),
    ],
)
def test_what_cannot_be_combined_is_refused(llama, monkeypatch, values, code, named):
    pretend(monkeypatch, "cuda", 0)
    with refuses(code, named):
        TransformerEncoder(llama, "mean", **values)


def test_quantized_weights_name_their_package(llama, monkeypatch):
    pretend(monkeypatch, "cuda", 1)
    monkeypatch.setattr("registry.resources.models.find_spec", lambda _: None)
    with refuses("models.missing_package", "bitsandbytes"):
        TransformerEncoder(llama, "mean", dtype="8bit", lora_rank=2)
