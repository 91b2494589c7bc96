"""Facts of recipes and components from a cache, so that commands which only read import no component and no torch.

The cache is in `cache()/catalog`: one file per recipe, and one for all components. An entry counts as long as the files
of the recipe and the installed code are unchanged. Everything in it can be computed again: a damaged file is ignored,
and so is a folder that cannot be written.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cse_cli.core.paths import cache
from cse_cli.recipe.completion import KINDS
from cse_cli.recipe.files import find, find_parent, name_of, place_file, title
from cse_cli.recipe.installed import installed
from cse_cli.recipe.requirements import Requirement, requirements
from cse_cli.recipe.schema import Paper
from registry.errors import CseError
from registry.paths import write_atomically

if TYPE_CHECKING:
    from cse_cli.recipe.load import LoadedRecipe

T = TypeVar("T")


@dataclass(frozen=True)
class RecipeFacts:
    """What the file of a recipe means today.

    Args:
        path: Absolute path of the file.
        title: Title. Of a recipe that is not valid, the title in its own file.
        language: Language. Empty if the recipe is not valid.
        paper: Printed row that it answers.
        settings: `Recipe.hash()`. Empty if the recipe is not valid.
        resolved: `Recipe.resolved()`, with lists for tuples. Empty if the recipe is not valid.
        requirements: Models, data sets and files that it names, in its order.
        error: What is wrong, with every reason. Empty if the recipe is valid.
    """

    path: Path
    title: str
    language: str = ""
    paper: Paper | None = None
    settings: str = ""
    resolved: dict[str, Any] = field(default_factory=dict)
    requirements: tuple[Requirement, ...] = ()
    error: str = ""

    @property
    def name(self) -> str:
        """Bare name such as "mini/ifcl_en" if it has one, else the stem of its file."""
        return name_of(self.path)


def recipe_facts(name_or_path: str) -> RecipeFacts:
    """Return what a recipe's file means today, from the cache if nothing changed.

    Args:
        name_or_path: A path that ends in `.toml`, or a bare name such as "ifcl_en".

    Raises:
        UnknownNameError: No recipe has this name. A file that is missing or not valid is a fact with an `error`.
    """
    path = find(name_or_path).absolute()
    file = _folder() / "recipes" / f"{hashlib.sha256(str(path).encode()).hexdigest()[:32]}.json"
    found = _from_cache(file, lambda entry: _recipe_facts(path, entry))
    return found if found is not None else _loaded_facts(path, file)


def _recipe_facts(path: Path, entry: dict[str, Any]) -> RecipeFacts | None:
    """Return the facts of an entry of the cache; None if a file changed or means another one in this folder."""
    files = [Path(name) for name, *_ in entry["files"]]
    if [_stamp(file) for file in files] != entry["files"] or entry["here"] not in (None, str(Path.cwd())):
        return None
    extended = zip(entry["extends"], files, files[1:], strict=False)
    if any(find_parent(name, child) != parent for name, child, parent in extended):
        return None
    if any(place_file(Path(name), Path(folder)) != placed for name, folder, placed in entry["placed"]):
        return None
    facts = entry["facts"]
    paper = None if facts["paper"] is None else Paper.model_validate(facts["paper"])
    wanted = (Requirement(**{**one, "wanted_by": tuple(one["wanted_by"])}) for one in facts["requirements"])
    return RecipeFacts(**{**facts, "path": path, "paper": paper, "requirements": tuple(wanted)})


def _loaded_facts(path: Path, file: Path) -> RecipeFacts:
    """Load a recipe, with all components, and put its facts into the cache."""
    from cse_cli.recipe.load import chain, load

    try:
        sources = chain(path)
        # Before the recipe is loaded: a change in between makes the entry out of date.
        files = [_stamp(source.path) for source in sources]
    except (CseError, OSError) as error:
        return RecipeFacts(path, title(path), error=str(error))
    loaded: LoadedRecipe | None = None
    try:
        loaded = load(str(path))
        facts = _facts(loaded)
    except CseError as error:
        facts = RecipeFacts(path, title(path), error=str(error))
    key = {
        "files": files,
        "extends": [source.tables["extends"] for source in sources[:-1]],
        "placed": [] if loaded is None else _placed(loaded),
        "here": str(Path.cwd()) if facts.error else None,  # messages show paths from here
    }
    paper = None if facts.paper is None else facts.paper.model_dump()
    stored = {**asdict(facts), "path": None, "paper": paper}
    if loaded is None or loaded.origins.sources == sources:
        _to_cache(file, {**key, "facts": stored})
    return facts


def _facts(loaded: LoadedRecipe) -> RecipeFacts:
    recipe = loaded.recipe
    return RecipeFacts(
        path=loaded.path,
        title=recipe.title,
        language=recipe.language,
        paper=recipe.paper,
        settings=recipe.hash(),
        resolved=json.loads(json.dumps(recipe.resolved())),  # the same from the cache and without it
        requirements=tuple(requirements(recipe)),
    )


def _placed(loaded: LoadedRecipe) -> list[tuple[str, str, str]]:
    """Return each file of text as written, the folder it counts from, and the path it has now."""
    written = loaded.tables["data"].get("file") or []
    folder = loaded.origins.folder(("data", "file"))
    names = [written] if isinstance(written, str) else written
    return [(name, str(folder), place_file(Path(name), folder)) for name in names]


def _stamp(file: Path) -> list[str | int]:
    """Return path, size and time of a file; a missing file has no time."""
    try:
        found = file.stat()
    except OSError:
        return [str(file), 0, 0]
    return [str(file), found.st_size, found.st_mtime_ns]


@dataclass(frozen=True)
class ComponentFacts:
    """What is registered.

    Args:
        documents: Kind → all that `cse show` prints of each component, by name.
        broken: Plug-in → why it could not be imported.
    """

    documents: dict[str, list[dict[str, Any]]]
    broken: dict[str, str]

    @property
    def every(self) -> list[dict[str, Any]]:
        """The documents of all kinds."""
        return [document for kind in KINDS for document in self.documents[kind]]


def component_facts() -> ComponentFacts:
    """Return what is registered, from the cache if the installed code is unchanged."""
    file = _folder() / "components.json"
    facts = _from_cache(file, lambda entry: ComponentFacts(entry["documents"], {})) or _registered(file)
    for document in facts.every:
        document["file"] = _relative(document["file"])
    return facts


def _registered(file: Path) -> ComponentFacts:
    """Import all components, and put their documents into the cache."""
    from cse_cli.recipe.describe import broken_plugins, entries, full

    documents = {kind: [full(entry) for entry in entries(kind)] for kind in KINDS}
    _to_cache(file, {"documents": documents})
    return ComponentFacts(documents, broken_plugins())


def _relative(file: str) -> str:
    path, here = Path(file), Path.cwd()
    return os.path.relpath(path, here) if path.is_relative_to(here) else file


# --- the cache --------------------------------------------------------------------------------------------------------


def _folder() -> Path:
    return cache() / "catalog"


def _from_cache(file: Path, built: Callable[[dict[str, Any]], T | None]) -> T | None:
    """Return what `built` makes of an entry; None if there is none for the installed code."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        checksum, content = file.read_bytes().split(b"\n", 1)
        if checksum == _checksum(content) and (entry := json.loads(content))["code"] == installed().key:
            return built(entry)
    return None


def _to_cache(file: Path, entry: dict[str, Any]) -> None:
    """Store an entry, unless this process runs other code than is installed, or a plug-in could not be imported."""
    from cse_cli.recipe.describe import broken_plugins

    with suppress(OSError):
        if installed().is_loaded and not broken_plugins():
            content = json.dumps({"code": installed().key, **entry}, default=str).encode()
            write_atomically(file, _checksum(content) + b"\n" + content)


def _checksum(content: bytes) -> bytes:
    return f"{zlib.crc32(content):08x}".encode()
