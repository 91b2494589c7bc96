"""Registering, looking up, building: what a registry promises about components of this package."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field
from torch import Tensor

import registry
from registry import LOSSES, QUEUES, REGISTRIES, Tune
from registry.errors import CseError
from registry.machinery.core import Registry
from registry.types import Encoder, Loss, Queue, Reference, Sentences
from tests.support.errors import refuses


class Plain(Loss):
    """Do nothing.

    Args:
        scale: Factor.
        teacher: Encoder that is followed.
    """

    def __init__(self, teacher: Encoder, scale: Annotated[float, Field(gt=0), Tune(0.1, 10)] = 1.0) -> None:
        super().__init__()
        self.teacher = [teacher]
        self.scale = scale

    def forward(self, anchor: Sentences) -> Tensor:
        return anchor.sum() * self.scale


@pytest.fixture
def losses():
    """An empty registry of losses that scans nothing."""
    return Registry("losses", "Loss", _scanned=True)


def test_an_entry_knows_what_its_class_says_and_builds_it(losses):
    assert losses.register("plain")(Plain) is Plain
    entry = losses["plain"]
    assert (entry.kind, entry.name, entry.cls, entry.summary) == ("losses", "plain", Plain, "Do nothing.")
    assert entry.references == (Reference("teacher", "encoder"),)
    assert [i.name for i in entry.inputs] == ["anchor"]
    assert Path(entry.file) == Path(__file__)
    assert "class Plain(Loss):" in Path(__file__).read_text().split("\n")[entry.line - 1]
    losses.register("plain")(Plain)
    online, target = Encoder(), Encoder()
    encoders = {"online": online, "target": target}
    assert losses["plain"].build({}, encoders).teacher == [online]
    made = losses["plain"].build({"teacher": "target", "scale": 2}, encoders)
    assert made.teacher == [target]
    assert made.scale == 2.0


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"scale": 0}, "greater than 0"),
        ({"scale": "1"}, "scale: should be a number, not the text"),
        ({"scale": float("nan")}, "finite number"),
        ({"scale": float("inf")}, "finite number"),
        ({"scale": True}, "scale: should be a number, not true"),
        ({"scael": 1.0}, "scael"),
        ({"teacher": "onlin"}, "unknown encoder 'onlin'. Did you mean 'online'?"),
    ],
)
def test_build_refuses_values_that_do_not_fit(losses, values, said):
    losses.register("plain")(Plain)
    with pytest.raises(CseError) as caught:
        losses["plain"].build(values, {"online": Encoder()})
    assert said in str(caught.value)


def test_unknown_names_are_suggested():
    with refuses(
        "component.unknown", "'info_nec'", "Did you mean 'info_nce' or 'mixed_info_nce'?", "`cse list losses`"
    ):
        LOSSES["info_nec"]
    with refuses("component.unknown", "'zzz'", "`cse list queues`"):
        QUEUES["zzz"]


def test_every_kind_scans_its_own_package():
    kinds = "augmenters encoders evaluators generators heads losses optimizers queues schedules"
    assert [r.kind for r in REGISTRIES] == kinds.split()
    singular = "augmenter encoder evaluator generator head loss optimizer queue schedule"
    assert [r.singular for r in REGISTRIES] == singular.split()
    for each in REGISTRIES:
        assert len(each) > 0
        for entry in each:
            assert entry.distribution == "cse"
            assert entry.cls.__module__.startswith(f"registry.{each.kind}.")


def test_a_second_owner_of_a_name_is_refused(losses):
    losses.register("plain")(Plain)

    class Rival(Plain):
        """Do something else."""

    with refuses("component.same_name", "'plain'", f"{__name__}.Plain", "Rival"):
        losses.register("plain")(Rival)
    losses.register("plain")(Plain)  # the same class, as when its module is reloaded
    assert losses.names() == ["plain"]


@pytest.mark.parametrize("name", ["Info", "info-nce", "1st", "", "info nce", None, Plain])
def test_names_that_no_recipe_could_write_are_refused(losses, name):
    with refuses("component.invalid_name", repr(name)):
        losses.register(name)


def test_base_class_and_docstring_must_fit_and_source_may_lack(losses):
    class Stranger(Queue):
        """Be a queue."""

    with refuses("component.wrong_base", "Stranger", "Loss"):
        losses.register("stranger")(Stranger)
    with refuses("component.wrong_base", "Loss"):
        losses.register("function")(test_unknown_names_are_suggested)

    class Silent(Plain):
        pass

    with refuses("component.no_docstring", "Silent"):
        losses.register("silent")(Silent)
    assert "silent" not in losses
    moved = type("Moved", (Plain,), {"__doc__": "Be elsewhere.", "__module__": "registry.losses.elsewhere"})
    with refuses("component.wrong_file", "Moved", "moved.py"):
        losses.register("moved")(moved)
    space = {"Loss": Loss, "Sentences": Sentences, "Tensor": Tensor, "__name__": "__console__"}
    exec('class Typed(Loss):\n    """Be typed in."""\n    def forward(self, anchor: Sentences): return 0', space)
    losses.register("typed")(space["Typed"])
    assert (losses["typed"].file, losses["typed"].line) == ("", 0)


def test_a_failing_module_of_ours_fails_every_time(monkeypatch, tmp_path):
    (tmp_path / "half_done.py").write_text("raise RuntimeError('half done')")
    monkeypatch.setattr(registry.losses, "__path__", [str(tmp_path)])
    fresh = Registry("losses", "Loss")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="half done"):
            len(fresh)


@pytest.mark.process
def test_a_lookup_imports_one_component_and_a_wrong_name_all():
    known = "from registry import LOSSES; LOSSES['info_nce']; print(list(LOSSES.registered)); "
    module_without_loss = "print('contrast' in LOSSES, len(LOSSES.registered) > 30)"
    command = [sys.executable, "-c", known + module_without_loss]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.split("\n") == ["['info_nce']", "False True", ""]
