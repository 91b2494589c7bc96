"""Settings that are valid and cannot be meant get a note before the first step; others get none."""

from __future__ import annotations

import pytest

from registry.encoders.saved import own_pooling
from tests.support.command import cse
from tests.support.shrunken import recipe


@pytest.fixture
def file(tmp_path, parts):
    return recipe(tmp_path, parts)


QUEUE = ("--set", "queue.name=fifo", "--set", "queue.view=anchor")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "note"),
    [
        ((*QUEUE, "--set", "queue.length=21"), "warning: queue.length is 21, but the text has 20 rows"),
        ((*QUEUE, "--set", "queue.length=20"), None),
        (("--set", "losses.info_nce.temperature=1e-30"), "note: losses.info_nce.temperature is 1e-30: usual values"),
        (("--set", "losses.info_nce.temperature=0.001"), None),
    ],
)
def test_a_note_names_the_setting(file, given, note, capsys):
    code, _, err = cse("run", str(file), *given, "--dry-run", "--device", "cpu", capsys=capsys)
    assert code == 0, err
    assert (note in err) if note else ("queue.length is" not in err and "usual values" not in err)


@pytest.mark.slow
def test_another_pooling_than_the_checkpoint_was_made_for(file, parts, tmp_path, capsys):
    run = ("--device", "cpu", "--dry-run")
    assert cse("run", str(file), "--device", "cpu", "--name", "first", capsys=capsys)[0] == 0
    (model,) = (tmp_path / "cse-home" / "runs").glob("*/model")
    assert (own_pooling(model), own_pooling(parts.models["bert"])) == ("mean", None)
    checkpoint = ("--set", f"encoders.online.model={model}")
    assert "was made for" not in cse("run", str(file), *run, *checkpoint, capsys=capsys)[2]
    changed = ("--set", "encoders.online.pooling=cls")
    assert "pooling is 'cls', but" in cse("run", str(file), *run, *checkpoint, *changed, capsys=capsys)[2]
    assert "was made for" not in cse("run", str(file), *run, *changed, capsys=capsys)[2]
    again = cse("run", str(file), "--device", "cpu", "--name", "second", capsys=capsys)[2]
    assert "note: --name has no effect on finished runs" in again
