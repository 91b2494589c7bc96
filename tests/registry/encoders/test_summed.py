import pytest
import torch

from registry.encoders.summed import SummedEncoder
from registry.encoders.transformer import TransformerEncoder
from tests.support.errors import refuses
from tests.support.tiny import sentences, tiny_bert


@pytest.fixture
def parts(tmp_path):
    folder = str(tiny_bert(tmp_path))
    made = [TransformerEncoder(folder, pooling=pooling, dropout=0.0) for pooling in ("cls", "mean")]
    with torch.no_grad():
        made[1].backbone.embeddings.word_embeddings.weight.mul_(1.5)
    return made


@pytest.mark.slow
def test_it_is_the_sum_of_both(parts, tmp_path):
    both = SummedEncoder(*parts)
    tokens = both.vocabulary.pad(both.vocabulary.ids(sentences(5), 16))
    expected = sum(part.encode_for_eval(tokens) for part in parts)
    assert torch.equal(both.encode_for_eval(tokens), expected)
    assert torch.equal(both.encode_for_eval(tokens, both.embed(tokens)), expected)
    encoded = both.encode(tokens, both.embed(tokens))
    torch.testing.assert_close(encoded.sentence, expected)
    assert (both.dim, both.width) == (encoded.sentence.shape[1], 2 * parts[0].width)
    wider = TransformerEncoder(str(tiny_bert(tmp_path, name="wider", width=32)))
    with refuses("encoders.cannot_be_summed", "widths: 16 and 32", "concatenated"):
        SummedEncoder(parts[0], wider)
