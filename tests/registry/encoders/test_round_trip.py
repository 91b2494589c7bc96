"""An export gives the vectors of the encoder here, in Python and in sentence-transformers, with each of its prompts."""

import shutil
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch

from cse_cli.core.devices import choose
from cse_cli.evaluation.encoder import SentenceEncoder
from cse_cli.evaluation.model import load_model
from registry import ENCODERS as NAMED
from registry.encoders.export import append_normalization
from registry.encoders.saved import open_encoder
from registry.heads.mlp import Mlp
from registry.prompts import Prompts
from registry.resources.models import complete, is_native, needed_files
from tests.support.chosen import these
from tests.support.families import ENCODERS, FAMILIES, tiny
from tests.support.tiny import sentences, word_vectors
from tests.support.versions import needs

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("sentence_transformers")]  # imported by one process

TEXTS = [*sentences(5), "", "dog", " ".join(["the cat sees a dog"] * 5)]
LENGTH = 12
PREFIX, SUFFIX, MASKED = "the man sings {text}", "the man {text} sings", "the man {text} is {mask} ."
VIEWS = {"query": "two dogs . ", "document": "the red cat sees ", "anchor": "not "}


def built(name, folder, family="bert", *, on=(), **values):
    """An encoder of a tiny model, or of the encoders `on`."""
    torch.manual_seed(1)
    given = {} if on else {"model": str(tiny(folder, family))}
    made = NAMED[name].build({**given, **values}, dict(on))
    if values.get("head_at_eval"):
        made.attach({"mlp": Mlp()})
    return made


def fitted(name, folder, base, **values):
    """An adjusted encoder."""
    made = built(name, folder, on={"online": base(folder)}, of="online", fit_on="target", **values)
    encode = SentenceEncoder(made, choose("cpu", "fp32"), None, LENGTH)
    made.fit(encode, sentences(60, seed=3))
    return made


def joined(name, folder, second, **values):
    """Two encoders of one model."""
    first = built("transformer", folder, pooling="mean")
    return built(name, folder, on={"one": first, "two": second(folder)}, first="one", second="two", **values)


def copied(name, folder, **values):
    """A copy of an encoder whose weights have changed since."""
    online = built("transformer", folder, pooling="mean")
    made = built(name, folder, on={"online": online}, of="online", **values)
    with torch.no_grad():
        for weight in made.target.parameters():
            weight.mul_(1.1)
    return made


def adapted(folder, **values):
    """A decoder with LoRA matrices that are not zero."""
    made = built("transformer", folder, "llama", pooling="mean", lora_rank=2, **values)
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if "lora_B" in name:
                weight.normal_()
    return made


def of_words(folder):
    """Averages of word vectors."""
    return NAMED["word_vectors"].build({"file": str(word_vectors(folder / "words.txt"))})


one = partial(built, "transformer")
mean = partial(one, pooling="mean")
families = [*(("cls", family) for family in ENCODERS), *product(("last", "weighted_mean"), FAMILIES)]
KINDS = {
    **{f"mean {family}": partial(one, family=family, pooling="mean") for family in FAMILIES},
    **{f"{pooling} {family}": partial(one, family=family, pooling=pooling) for pooling, family in families},
    **{f"prefix {family}": partial(one, family=family, pooling="mean", template=PREFIX) for family in FAMILIES},
    "last two layers": partial(one, pooling="last2"),
    "two layers": partial(one, pooling="first_last", first_layer_index=1, head_at_eval=True),
    "two layers of a decoder": partial(one, family="llama", pooling="first_last"),
    "two layers prefix": partial(one, pooling="first_last", template=PREFIX, head_at_eval=True),
    "empty template": partial(one, pooling="cls", template="{text}"),
    "suffix": partial(one, pooling="mean", template=SUFFIX),
    "suffix of a decoder": partial(one, family="llama", pooling="last", template=SUFFIX),
    "ending": partial(one, pooling="mean", template=PREFIX, end_with="stop"),
    "denoised": partial(one, pooling="mask", template=MASKED, denoise="padding", denoise_at_eval=True),
    "mask": partial(one, pooling="last_mask", eval_pooling="mask", template=MASKED),
    "joined": partial(one, pooling="mean", template=PREFIX, template_joined=True),
    "two templates": partial(one, pooling="mean", template=[PREFIX, SUFFIX]),
    "text": partial(one, pooling="text", template=PREFIX),
    "layer": partial(one, pooling="mean", layer=1),
    "bidirectional": partial(one, family="llama", pooling="mean", attention="bidirectional", template=PREFIX),
    "lora": adapted,
    "lora prefix": partial(adapted, template=PREFIX),
    "padded": partial(built, "padded", positions=24),
    "padded prefix": partial(built, "padded", positions=24, template=PREFIX),
    "prefixed": partial(built, "prefixed", pooling="mean", length=2),
    "prefixed prefix": partial(built, "prefixed", pooling="mean", length=2, template=[PREFIX, SUFFIX]),
    "ditto": partial(built, "ditto", block=1, head=1, first_layer_index=1),
    "ditto prefix": partial(built, "ditto", template=[PREFIX, SUFFIX]),
    "contrastive prompting": partial(
        built, "contrastive_prompting", family="llama", template=SUFFIX, auxiliary=PREFIX, block=1, coefficient=0.5
    ),
    "convolutional": partial(built, "convolutional", pooling="mean", channels=4),
    "convolutional head": partial(
        built, "convolutional", pooling="cls", channels=4, windows=[1, 3, 5], activation="none", head_at_eval=True
    ),
    "ema": partial(copied, "ema", decay=0.9),
    "frozen copy": partial(copied, "frozen_copy"),
    "static": partial(built, "static", dim=5, sif=1e-2),
    "words": of_words,
    "whitened": partial(fitted, "whitening", base=mean),
    "whitened prefix": partial(fitted, "whitening", base=partial(mean, template=PREFIX)),
    "whitened decoder": partial(fitted, "whitening", base=partial(mean, family="llama")),
    "whitened mask": partial(fitted, "whitening", base=partial(one, pooling="mask", template=MASKED)),
    "whitened words": partial(fitted, "whitening", base=of_words),
    "component removal": partial(fitted, "component_removal", base=mean),
    "component removal static": partial(fitted, "component_removal", base=partial(built, "static", dim=5)),
    "flow": partial(fitted, "flow", base=mean, batch_size=20, levels=1, depth=1, width=4),
    "rank mixture": partial(fitted, "rank_mixture", base=mean),
    "concatenated": partial(joined, "concatenated", second=partial(one, pooling="cls"), share=0.3),
    "concatenated static": partial(joined, "concatenated", second=partial(built, "static", dim=5)),
    "concatenated whitened": partial(joined, "concatenated", second=partial(fitted, "whitening", base=mean)),
    "summed": partial(joined, "summed", second=partial(one, pooling="cls")),
}
ONLY_CSE = {
    "suffix", "suffix of a decoder", "ending", "denoised", "mask", "joined", "two templates", "text", "layer",
    "two layers of a decoder", "bidirectional", "padded", "padded prefix", "prefixed", "prefixed prefix", "ditto",
    "ditto prefix", "words", "contrastive prompting", "whitened prefix", "whitened decoder", "whitened mask",
    "whitened words", "flow", "rank mixture", "concatenated", "concatenated static", "concatenated whitened",
    "summed", "component removal static",
}  # fmt: skip
"""Kinds that sentence-transformers computes through cse."""
EXHAUSTIVE = {f"{pooling} {family}" for pooling, family in families if family not in ("bert", "t5", "llama")}
EXHAUSTIVE |= {f"prefix {family}" for family in FAMILIES if family not in ("bert", "roberta", "t5", "llama")}
"""Poolings and prompts that other families have, with the same kinds of tokenizers."""


@pytest.mark.parametrize("kind", these((kind for kind in KINDS if kind not in EXHAUSTIVE), KINDS))
def test_every_reader_gives_the_same_vectors(tmp_path, kind):
    library = pytest.importorskip("sentence_transformers")
    if kind == "bidirectional":
        needs("bidirectional attention of decoders")
    encoder = KINDS[kind](tmp_path)
    views = VIEWS if getattr(encoder.vocabulary, "template", None) is None else {}
    encoder.prompts = Prompts(views)
    folder = tmp_path / "out" / "model"
    encoder.export(folder, LENGTH)
    assert is_native(folder) == (kind not in ONLY_CSE)
    fetched = tmp_path / "fetched"
    for name in needed_files([str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()]):
        (fetched / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / name, fetched / name)
    assert complete(fetched)
    model, (again, limit) = load_model(folder), open_encoder(str(fetched))
    assert limit == model.max_length == LENGTH
    if kind in ONLY_CSE:  # instead of the transformer with another pooling
        with pytest.raises(ValueError, match=r"module class 'registry\.through_cse\.CseEncoder'"):
            library.SentenceTransformer(str(folder), device="cpu")
    theirs = library.SentenceTransformer(str(folder), device="cpu", trust_remote_code=kind in ONLY_CSE)
    theirs.save(str(tmp_path / "theirs"))
    readers = [(encoder, LENGTH), (again, limit), open_encoder(str(tmp_path / "theirs"))]
    ours, *others = (SentenceEncoder(each, choose("cpu", "fp32"), None, length) for each, length in readers)
    alone = {}
    if kind.startswith("convolutional"):  # their convolutions read padding
        alone, others = {"batch_size": 1}, others[:1]
    asked = {None: theirs.encode, "query": theirs.encode_query, "document": theirs.encode_document}
    for side, their_encode in asked.items():
        found = [their_encode(TEXTS, **alone), model.encode(TEXTS, side=side), *(each(TEXTS, side) for each in others)]
        for vectors in found:
            np.testing.assert_allclose(vectors, ours(TEXTS, side), rtol=0, atol=1e-6)
    for name in views:
        found = [theirs.encode(TEXTS, prompt_name=name, **alone), *(each(TEXTS, None, [name]) for each in others)]
        for vectors in found:
            np.testing.assert_allclose(vectors, ours(TEXTS, None, [name]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["mean bert", "whitened", "whitened prefix"])
def test_an_export_with_a_normalization(tmp_path, kind):
    library = pytest.importorskip("sentence_transformers")
    encoder, folder = KINDS[kind](tmp_path), tmp_path / "model"
    encoder.export(folder, LENGTH)
    append_normalization(folder)
    ours = np.asarray(SentenceEncoder(encoder, choose("cpu", "fp32"), None, LENGTH)(TEXTS))
    expected = ours / np.linalg.norm(ours, axis=1, keepdims=True)
    theirs = library.SentenceTransformer(str(folder), device="cpu", trust_remote_code=kind in ONLY_CSE)
    np.testing.assert_allclose(theirs.encode(TEXTS), expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(load_model(folder).encode(TEXTS), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["words", "suffix", "prefix bert"])
def test_a_model_in_python_becomes_one_of_sentence_transformers(tmp_path, kind):
    pytest.importorskip("sentence_transformers")
    encoder = KINDS[kind](tmp_path)
    encoder.prompts = Prompts({"query": "the cat "} if kind == "words" else {})
    encoder.export(tmp_path / "model", LENGTH)
    model = load_model(tmp_path / "model")
    model.encoder.normalizes = kind == "words"
    theirs = model.to_sentence_transformers()
    np.testing.assert_allclose(theirs.encode(TEXTS), model.encode(TEXTS), rtol=0, atol=1e-6)
    np.testing.assert_allclose(theirs.encode_query(TEXTS), model.encode(TEXTS, side="query"), rtol=0, atol=1e-6)
    assert (theirs.encode_query(TEXTS) != theirs.encode(TEXTS)).any() == (kind == "words")
