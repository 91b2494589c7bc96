"""Digest of the code of a component, without docstrings, comments, annotations' imports and layout.

It includes the component's module and all modules of its distribution that are imported, directly or indirectly, also
inside functions. They are found in syntax trees, without importing them. Three rules limit it to code that is used:

- A package's `__init__` counts with its definitions. Of its imports, only those of the requested names are followed. A
  new component in a plug-in with `from .new import New` changes no other component.
- Code under `if TYPE_CHECKING:` does not count. Imports of a lazy `__getattr__` are not followed: `from registry import
  LOSSES` does not add the registry to every component.
- The distribution is the top-level package, and what is installed with it. For a script, it includes the modules in the
  same directory.

Digests are the same for all Python versions that parse the code to the same tree, because empty fields are omitted.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import inspect
import pkgutil
import sys
import sysconfig
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from registry.errors import CseError

_BUILT_IN = frozenset({"registry", "cse_cli"})
"""Top-level packages of this distribution, which do not count as modules next to a script."""

_FETCHING = frozenset(
    {
        "registry.errors",
        "registry.resources.hub",
        "registry.paths",
        "registry.resources.download",
    }
)
"""Modules that download files and report errors. They do not count, because the files have digests."""


@dataclass(frozen=True)
class _Module:
    """A module.

    Args:
        name: Full name.
        file: File with its code. Empty for a namespace package.
        folders: Directories of a package. Empty for a module.
    """

    name: str
    file: str
    folders: tuple[str, ...] = ()

    @cached_property
    def root(self) -> str:
        """Directory of its top-level package."""
        place = Path(self.folders[0] if self.folders else self.file)
        return str(place.parents[self.name.count(".")])


@dataclass(frozen=True)
class _Import:
    """A name that an import statement binds.

    Args:
        bound: Bound name.
        module: Full name of the imported module.
        taken: Name in the module. Empty for the module itself.
    """

    bound: str
    module: str
    taken: str = ""


@dataclass(frozen=True)
class _Code:
    """Contents of a file.

    Args:
        whole: Digest of its tree.
        passed: Digest without import statements and `__all__`, for a package that re-exports names.
        imports: All imports.
    """

    whole: str
    passed: str = ""
    imports: tuple[_Import, ...] = ()


def code_digest(cls: Any) -> str:
    """Return the SHA-256 of the code of a component, a class or a function.

    A class without a file, for example in a notebook, counts with its source. Without source, it counts with the
    version of its distribution.
    """
    start = _find(cls.__module__)
    if start is None or not start.file:
        return _digest(_without_file(cls))
    return _digest("\n".join(sorted(set(_used_by(start)))))


def modules_digest(names: Iterable[str]) -> str:
    """Return the SHA-256 of the code of modules, and of all modules in packages, without their imports.

    Raises:
        CseError: If a module does not exist.
    """
    return _digest("\n".join(f"{module.name} {_code(module).whole}" for name in names for module in _below(name)))


def _below(name: str) -> Iterator[_Module]:
    module = _find(name)
    if module is None:
        raise CseError(f"module {name} does not exist", "install cse again", code="code.missing_module")
    yield module
    for inner in sorted(each.name for each in pkgutil.iter_modules(module.folders)):
        yield from _below(f"{name}.{inner}")


# --- use of modules ---------------------------------------------------------------------------------------------------

_Use = tuple[str, str | None]
"""Module and use: a re-exported name, "" for the whole module, or None if only a submodule is imported."""


def _used_by(start: _Module) -> Iterator[str]:
    """Yield a line for each part of the code that a module uses, including the module."""
    seen: set[_Use] = set()
    waiting: list[_Use] = [(start.name, "")]
    while waiting:
        use = waiting.pop()
        name, taken = use
        if use in seen or name in _FETCHING or (module := _find(name)) is None:
            continue
        seen.add(use)
        code = _code(module)
        yield f"{name} {code.passed if taken != '' and module.folders else code.whole}"
        if taken is None:
            continue
        followed = [each for each in code.imports if taken in ("", each.bound)]
        if taken:
            yield f"{name}.{taken} = {followed}"
        for each in followed:
            if _is_own(start, each.module):
                waiting += _uses(each)


def _uses(wanted: _Import) -> Iterator[_Use]:
    """Yield the uses of one import: its parent packages, and the module or a name in it."""
    target = wanted.module
    if wanted.taken and _find(f"{target}.{wanted.taken}") is not None:
        target = f"{target}.{wanted.taken}"
        yield target, ""
    else:
        yield target, wanted.taken if _passes_on(target, wanted.taken) else ""
    while target := target.rpartition(".")[0]:
        yield target, None


def _passes_on(name: str, taken: str) -> bool:
    """Return whether a package re-exports a name, which its `__init__` imports."""
    module = _find(name)
    return module is not None and bool(module.folders) and any(e.bound == taken for e in _code(module).imports)


# --- search for modules -----------------------------------------------------------------------------------------------


def _find(name: str) -> _Module | None:
    """Return a module without importing it, or None."""
    loaded = sys.modules.get(name)
    if file := getattr(loaded, "__file__", None):
        return _Module(name, str(file), tuple(getattr(loaded, "__path__", ())))
    above, _, _ = name.rpartition(".")
    if above:
        package = _find(above)
        spec = PathFinder.find_spec(name, list(package.folders)) if package is not None and package.folders else None
    else:
        spec = None if loaded is not None else importlib.util.find_spec(name)
    if spec is None:
        return None
    return _Module(name, spec.origin or "" if spec.has_location else "", tuple(spec.submodule_search_locations or ()))


def _is_own(start: _Module, name: str) -> bool:
    """Return whether a module belongs to the distribution of another."""
    top, first = name.partition(".")[0], start.name.partition(".")[0]
    if top == first:
        return True
    return top not in _BUILT_IN and top not in sys.stdlib_module_names and _together(first, start.root, top)


@cache
def _together(first: str, root: str, top: str) -> bool:
    """Return whether a top-level package belongs to the distribution of another, which is imported from `root`."""
    other = _find(top)
    if other is None or other.root != root:
        return False
    return root not in _installed() or not _distributions(first).isdisjoint(_distributions(top))


@cache
def _installed() -> frozenset[str]:
    """Return the directories that contain many distributions."""
    return frozenset(sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib"))


@cache
def _all_distributions() -> dict[str, frozenset[str]]:
    return {top: frozenset(names) for top, names in importlib.metadata.packages_distributions().items()}


def _distributions(top: str) -> frozenset[str]:
    return _all_distributions().get(top, frozenset())


# --- contents of files ------------------------------------------------------------------------------------------------

_parsed: dict[_Module, tuple[tuple[int, int], _Code]] = {}
"""Module → modification time and size of its file when it was parsed, and its contents."""


def _code(module: _Module) -> _Code:
    """Return the contents of a module, parsed again only if its file changes."""
    if not module.file:
        return _Code("")
    try:
        stat = Path(module.file).stat()
    except OSError:  # in an archive, or deleted since it was imported
        return _Code("")
    state = stat.st_mtime_ns, stat.st_size
    known = _parsed.get(module)
    if known is None or known[0] != state:
        known = _parsed[module] = state, _read(module)
    return known[1]


def _read(module: _Module) -> _Code:
    content = Path(module.file).read_bytes()
    if not module.file.endswith(".py"):
        return _Code(_digest(content))
    try:
        tree = ast.parse(content)
        walk = _Walk()
        whole = _digest(repr(walk.plain(tree)))
    except (SyntaxError, ValueError, RecursionError):  # a compiled file, or one that is being written
        return _Code(_digest(content))
    tree.body = [statement for statement in tree.body if not _passes_names(statement)]
    passed = _digest(repr(_Walk().plain(tree))) if module.folders else ""
    return _Code(whole, passed, tuple(each for node in walk.imports for each in _bound(module, node)))


class _Walk:
    """Conversion of a syntax tree to lists, which also collects its import statements."""

    def __init__(self) -> None:
        self.imports: list[ast.Import | ast.ImportFrom] = []

    def plain(self, node: Any) -> Any:
        """Return a node without docstrings, contexts and empty fields."""
        if isinstance(node, ast.AST):
            if isinstance(node, ast.Import | ast.ImportFrom):
                self.imports.append(node)
            found: list[Any] = [type(node).__name__]
            for name in node._fields:
                value = getattr(node, name, None)
                if value is not None and value != [] and name not in ("ctx", "kind"):
                    found += (name, self.plain(value))
            return found
        if isinstance(node, list):
            kept = _that_run(node) if isinstance(node[0], ast.stmt) else node
            return [self.plain(each) for each in kept]
        return node


def _that_run(nodes: list[Any]) -> Iterator[Any]:
    """Yield the statements that run: no docstrings and other bare strings, no `if TYPE_CHECKING:`."""
    for node in nodes:
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from _that_run(node.orelse)
        elif not (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        ):
            yield node


def _passes_names(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign):
        return ast.unparse(statement.targets[0]) == "__all__"
    return isinstance(statement, ast.Import | ast.ImportFrom)


def _bound(module: _Module, node: ast.Import | ast.ImportFrom) -> Iterator[_Import]:
    """Yield the names that an import statement binds, with absolute module names."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield _Import(alias.asname or alias.name.partition(".")[0], alias.name)
        return
    source = node.module or ""
    if node.level:
        parts = module.name.split(".")
        kept = len(parts) - node.level + bool(module.folders)
        source = ".".join([*parts[:kept], *filter(None, [node.module])])
    for alias in node.names:
        yield _Import(alias.asname or alias.name, source, "" if alias.name == "*" else alias.name)


def _without_file(cls: type) -> str:
    try:
        return repr(_Walk().plain(ast.parse(textwrap.dedent(inspect.getsource(cls)))))
    except (OSError, TypeError, SyntaxError):
        names = sorted(_distributions(cls.__module__.partition(".")[0]))
        return "\n".join([cls.__qualname__, *(f"{name} {importlib.metadata.version(name)}" for name in names)])


def _digest(content: str | bytes) -> str:
    whole = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return hashlib.sha256(whole).hexdigest()
