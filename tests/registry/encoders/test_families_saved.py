import pytest
import torch

from registry.encoders.saved import open_encoder
from registry.encoders.transformer import TransformerEncoder
from registry.errors import CseError
from registry.resources.models import is_native
from tests.registry.encoders.vectors import encoding, reopened
from tests.support.tiny import sentences, tiny_gpt2, tiny_llama, tiny_modernbert
from tests.support.versions import needs

pytestmark = pytest.mark.slow

TEXTS = [*sentences(), " ".join(["the cat sees a dog"] * 5)]


def exported(tmp_path, make, values, max_length=12):
    encoder = TransformerEncoder(str(make(tmp_path)), **values)
    folder = tmp_path / "out" / "model"
    encoder.export(folder, max_length)
    return encoder, folder


def vectors(encoder):
    return encoding(encoder)(TEXTS)


def test_what_the_prepended_state_needs_is_saved(tmp_path):
    given = {"pooling": "mean", "prepend": [1, 2], "placeholder": "_"}
    encoder = TransformerEncoder(str(tiny_llama(tmp_path)), **given)
    reopened(encoder, tmp_path / "out" / "model", ["_ a cat sees a dog", "a _ man"])


def test_a_saved_bidirectional_decoder_stays_bidirectional_with_another_pooling(tmp_path):
    needs("bidirectional attention of decoders")
    encoder, folder = exported(tmp_path, tiny_llama, {"attention": "bidirectional", "pooling": "mean"})
    again = TransformerEncoder(str(folder), "mean")
    assert again.attention == "bidirectional"
    assert torch.equal(vectors(again), vectors(encoder))
    again.export(tmp_path / "twice", 12)
    assert not is_native(tmp_path / "twice")
    assert torch.equal(vectors(open_encoder(str(tmp_path / "twice"))[0]), vectors(encoder))
    _, folder = exported(tmp_path, tiny_llama, {"attention": "bidirectional", "pooling": "mean"})
    again = open_encoder(str(folder), "last")[0]
    assert (again.eval_pooling, again.attention) == ("last", "bidirectional")
    with pytest.raises(CseError, match="pooling"):
        open_encoder(str(tiny_gpt2(tmp_path)), "cls")


@pytest.mark.parametrize(("make", "pooling"), [(tiny_llama, "last"), (tiny_gpt2, "last"), (tiny_modernbert, "cls")])
def test_a_plain_model_is_opened_as_it_was_trained(tmp_path, make, pooling):
    folder = str(make(tmp_path))
    encoder, max_length = open_encoder(folder)
    assert isinstance(encoder, TransformerEncoder)
    assert (encoder.eval_pooling, max_length) == (pooling, 64)
    expected = TransformerEncoder(folder, pooling=pooling)
    assert torch.equal(vectors(encoder), vectors(expected))
    assert torch.equal(vectors(open_encoder(folder, "mean")[0]), vectors(TransformerEncoder(folder, pooling="mean")))
