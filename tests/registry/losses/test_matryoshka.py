import pytest
import torch

from registry.errors import CseError
from registry.losses.info_nce import InfoNCE
from registry.losses.matryoshka import Matryoshka
from registry.types import Negatives
from tests.registry.losses import literal as slow


def test_placeholder():
    assert Matryoshka(InfoNCE(), [1]).widths == [1]
