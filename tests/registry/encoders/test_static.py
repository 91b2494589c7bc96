import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from registry import ENCODERS
from registry.encoders.averages import inverse_frequency, zipf
from registry.encoders.saved import open_encoder
from registry.encoders.static import Static
from registry.tokens import Sample
from tests.registry.encoders.vectors import encoding
from tests.support.errors import refuses
from tests.support.tiny import sentences, tiny_bert

pytestmark = pytest.mark.slow

TEXTS = ["a man sings", "the dog runs.", "the zebra sleeps", "!", "a a a a a a a a cat"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(tiny_bert(tmp_path_factory.mktemp("models")))


def test_the_table_written_out_with_transformers(model):
    tokenizer, network = AutoTokenizer.from_pretrained(model), AutoModel.from_pretrained(model).eval()
    kept = [
        token
        for token in range(len(tokenizer))
        if token not in tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]", "[MASK]"])
    ]
    with torch.no_grad():
        rows = [torch.tensor([[tokenizer.cls_token_id, token, tokenizer.sep_token_id]]) for token in kept]
        alone = np.stack([network(row).last_hidden_state[0].mean(0).double().numpy() for row in rows])
    centered = alone - alone.mean(0)
    coordinates = centered @ np.linalg.svd(centered)[2][:6].T
    coordinates *= np.sign(coordinates[np.abs(coordinates).argmax(0), np.arange(6)])
    shares = [1 / rank for rank in range(2, len(kept) + 2)]
    weights = [1e-3 / (1e-3 + share / sum(shares)) for share in shares]
    expected = np.zeros((len(tokenizer), 6))
    expected[kept] = coordinates * np.array(weights)[:, None]
    expected[[tokenizer.pad_token_id, tokenizer.unk_token_id]] = 0
    made = Static(model, dim=6, sif=1e-3)
    torch.testing.assert_close(made.table.detach(), torch.from_numpy(expected).float(), rtol=1e-5, atol=1e-7)
    # Without special tokens, and [UNK] counts.
    names = ["the", "[UNK]", "sleeps"]
    mean = expected[tokenizer.convert_tokens_to_ids(names)].sum(0) / 3
    torch.testing.assert_close(
        encoding(made)(["the zebra sleeps"])[0], torch.from_numpy(mean).float(), rtol=1e-5, atol=1e-7
    )


def test_weights_by_hand_and_without_them_the_embedding_of_the_token(model):
    # 1/2, 1/3 and 1/6 of 1: the ranks 1, 1.5 and 3. Half of the weight where a = p.
    assert zipf(2, first=2).tolist() == pytest.approx([0.6, 0.4])
    assert inverse_frequency(torch.tensor([0.6, 0.4, 0.0]), 0.6).tolist() == pytest.approx([0.5, 0.6, 1.0])
    teacher, _ = open_encoder(model, "mean")
    (token,) = teacher.vocabulary.pieces([Sample("dog")], 8)
    made = Static(model)
    expected = teacher.encode_for_eval(teacher.vocabulary.assemble([token]))
    torch.testing.assert_close(encoding(made)(["dog"]), expected, rtol=1e-5, atol=1e-6)
    assert made.table[made.vocabulary.id_of("[UNK]")].abs().sum() == 0


def test_training_changes_the_tokens_of_a_batch_and_what_a_table_lacks_is_refused(model, tmp_path):
    made = Static(model, dim=4)
    tokens = made.vocabulary.tokens([Sample("the cat"), Sample("cat")], 8)
    encoded = made.encode(tokens, made.embed(tokens))
    assert torch.equal(encoded.sentence, made.encode_for_eval(tokens))
    encoded.sentence.sum().backward()
    the, cat = (made.vocabulary.id_of(word) for word in ("the", "cat"))
    gradient = made.table.grad.sum(1) / 4
    assert gradient[[the, cat]].tolist() == [0.5, 1.5]
    assert gradient.sum() == 2
    assert not Static(model, dim=4, frozen=True).table.requires_grad
    with refuses("encoders.too_many_directions", "17", "16"):
        Static(model, dim=17)
    made = Static(model, dim=4)
    with refuses("vocabulary.unsupported_template"):
        made.vocabulary.with_template("It is {text}.")
    made.export(tmp_path / "static", max_length=8)
    with refuses("encoders.unsupported_setting", "static"):
        open_encoder(str(tmp_path / "static"), pooling="cls")
    assert made.vocabulary.fingerprint != open_encoder(model)[0].vocabulary.fingerprint


def test_equals_the_package_model2vec(model, tmp_path):
    distill = pytest.importorskip("model2vec.distill", reason="model2vec (extra 'parity') is not installed").distill
    # 1e-4, because the package computes its directions in single precision.
    theirs = distill(model, pca_dims=6, sif_coefficient=0.1, quantize_to="float32", device="cpu")
    made = ENCODERS["static"].build({"model": model, "dim": 6, "sif": 0.1})
    names = list(theirs.tokens)
    ours = made.table.detach()[made.vocabulary.tokenizer.convert_tokens_to_ids(names)]
    assert names[:2] == ["[PAD]", "[UNK]"]
    torch.testing.assert_close(ours[2:], torch.from_numpy(theirs.embedding)[2:], rtol=0, atol=1e-4)
    unit = torch.nn.functional.normalize(encoding(made)(sentences(20)))
    torch.testing.assert_close(unit, torch.from_numpy(theirs.encode(sentences(20))), rtol=0, atol=1e-4)
