"""A transformer decoder whose memory is one vector, row by row and head by head, and what its states cost."""

import math

import torch


def normed(x, layer):
    centered = x - x.mean(-1, keepdim=True)
    return centered / (centered.pow(2).mean(-1, keepdim=True) + layer.eps).sqrt() * layer.weight + layer.bias


def attended(x, memory, attention):
    """Return what x (n, D) takes from memory (m, D), head after head."""
    width, heads = x.shape[1], attention.num_heads
    weights, biases = attention.in_proj_weight.split(width), attention.in_proj_bias.split(width)
    query, key, value = (given @ w.T + b for given, w, b in zip((x, memory, memory), weights, biases, strict=True))
    size = width // heads
    found = []
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        scores = query[:, part] @ key[:, part].T / math.sqrt(size)
        found.append(scores.exp() / scores.exp().sum(1, keepdim=True) @ value[:, part])
    return torch.cat(found, 1) @ attention.out_proj.weight.T + attention.out_proj.bias


def decoded(vectors, sentence, decoder):
    """Return states (n, D) of token vectors (n, D), given a sentence vector (D,)."""
    x = vectors
    for layer in decoder.layers:
        x = normed(x + attended(x, x, layer.self_attn), layer.norm1)
        x = normed(x + attended(x, sentence.unsqueeze(0), layer.multihead_attn), layer.norm2)
        inner = (x @ layer.linear1.weight.T + layer.linear1.bias).clamp(min=0)
        x = normed(x + inner @ layer.linear2.weight.T + layer.linear2.bias, layer.norm3)
    return x


def token_cost(head, words, state, target):
    """Return −log of the probability that BERT's prediction head gives to a token, number by number."""
    bent = []
    for weights, bias in zip(head.dense.weight.tolist(), head.dense.bias.tolist(), strict=True):
        x = sum(w * s for w, s in zip(weights, state.tolist(), strict=True)) + bias
        bent.append(x * (1 + math.erf(x / math.sqrt(2))) / 2)
    mean = sum(bent) / len(bent)
    spread = math.sqrt(sum((b - mean) ** 2 for b in bent) / len(bent) + head.norm.eps)
    scale = zip(bent, head.norm.weight.tolist(), head.norm.bias.tolist(), strict=True)
    scaled = [(b - mean) / spread * g + c for b, g, c in scale]
    scores = [
        sum(e * s for e, s in zip(word, scaled, strict=True)) + c
        for word, c in zip(words.tolist(), head.bias.tolist(), strict=True)
    ]
    return math.log(sum(map(math.exp, scores))) - scores[target]


def literal(loss, words, views, text_alone=False):
    """Return the mean cost of the tokens of views: (vectors, ids, mask, text, sentence), each of several rows."""
    total, count = 0.0, 0
    for vectors, ids, mask, text, sentence in zip(*views, strict=True):
        real = mask == 1
        states = decoded(vectors[real], sentence, loss.decoder)
        counted = text[real] if text_alone else torch.ones_like(ids[real])
        for state, piece, counts in zip(states, ids[real].tolist(), counted.tolist(), strict=True):
            if counts:
                total += token_cost(loss.language.head, words, state, piece)
                count += 1
    return total / count
