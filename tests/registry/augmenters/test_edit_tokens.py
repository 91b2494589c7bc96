from collections import Counter
from random import Random

from registry.augmenters.edit_tokens import EditTokens
from registry.tokens import Pieces

IDS = (10, 11, 12, 13, 11, 15, 16, 17, 18, 19)


def edited(ids=IDS, seed=0, **params):
    return EditTokens(**params).on_pieces([Pieces(ids)], Random(seed))[0].first


def drawn(seed, edit, number=0):
    return Random(f"{Random(seed).getrandbits(64)}:{edit}:{number}")


def test_reverse_by_hand_and_shuffle_drawn_evenly():
    assert edited(edit="reverse") == (19, 18, 17, 16, 15, 11, 13, 12, 11, 10)
    assert EditTokens("reverse").on_pieces([Pieces((1, 2), (3, 4, 5))], Random(0)) == [Pieces((2, 1), (5, 4, 3))]
    assert sorted(edited(edit="shuffle")) == sorted(IDS)
    orders = Counter(edited((1, 2, 3), seed, edit="shuffle") for seed in range(600))
    assert len(orders) == 6
    assert all(60 < count < 140 for count in orders.values())


def test_delete_takes_the_first_occurrence_of_what_is_drawn():
    for seed in range(30):
        rng, expected = drawn(seed, "delete"), list(IDS)
        for _ in range(3):
            value = expected[rng.choice(range(len(expected)))]
            del expected[expected.index(value)]
        assert edited(seed=seed, edit="delete", rate=0.3) == tuple(expected)


def test_repeat_inserts_what_is_there_anywhere():
    for seed in range(30):
        rng, expected = drawn(seed, "repeat"), list(IDS)
        for _ in range(3):
            value = expected[rng.choice(range(len(expected)))]
            place = rng.randint(0, len(expected))
            expected = [*expected[:place], value, *expected[place:]]
        assert edited(seed=seed, edit="repeat", rate=0.3) == tuple(expected)


def test_a_fifth_of_the_tokens_within_limits():
    for length, changed in ((1, 0), (2, 0), (3, 1), (7, 1), (8, 2), (30, 6)):
        assert len(edited(tuple(range(length)), edit="delete")) == length - changed
        assert len(edited(tuple(range(length)), edit="repeat")) == length + changed
    assert len(edited(edit="delete", rate=1.0)) == 1
    assert edited((), edit="delete", rate=1.0) == ()
    assert len(edited(edit="repeat", rate=0.5, longest=12)) == 12
    assert edited(edit="repeat", rate=0.5, longest=4) == IDS


def test_views_with_the_same_number_are_edited_alike():
    for edit in ("shuffle", "delete", "repeat"):
        assert edited(edit=edit) == edited(edit=edit)
        assert edited(edit=edit) != edited(edit=edit, number=1)
    assert edited(edit="shuffle", seed=0) != edited(edit="shuffle", seed=1)
