"""A user's code outside this package: found by ``module:factory`` or ``file.py:factory``, named when it fails, and kept from
changing the role that it runs in."""

import difflib
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final

from rljob.errors import UsageError, named

_authors: set[str] = set()
"""Files, and folders of packages, that were loaded here and are not ours."""
_folders: set[str] = set()
"""Those that were put at the end of ``sys.path`` for files."""
_theirs: dict[Callable[[Any], Any], Any] = {}
"""What code of a user's has set for the whole process, by the function that sets it."""
_files: dict[Path, ModuleType] = {}
"""What was loaded from files, by their whole paths."""
PLUGIN_FAILURES: Final = (Exception, SystemExit)
"""What code of a user's own may raise: a request to end the process is reported like any other failure, and not obeyed."""
OF_THE_PROGRAM: Final = (
    "the processes of a run can't import what a notebook or a program defines itself; write it into a file, say env.py (in a "
    "notebook with %%writefile env.py), and name env.py:make"
)
_MANY = 8
_LONGEST_SHOWN = 200
_NOT_BY_USERS = frozenset(("rljob", "rljob_operator", "gymnasium", "ale_py"))


class PluginProblem(UsageError):
    """Something of the user's own can't be loaded, or is not what it has to be: which function, what was expected, what came."""


class NotHere(PluginProblem):
    """There is no such file or module on this machine; on another one there may be."""


class NotBesideManifest(NotHere):
    """The same of what is looked for here alone, unless the job has an image of its own: a file, or a registered id."""


def loaded(name: str) -> Callable[..., Any]:
    """The callable that ``name`` names. Raises PluginProblem, NotHere where the module or the file itself is not there.

    A file is imported by its own name, with its folder at the end of ``sys.path``: what lies beside it can be imported too, and
    so can the file by other processes. One with relative imports is imported as a part of its package, from the folder around
    that. One that is not where it was (in another machine's checkpoint, say) may be any module of that name that can be
    imported.
    """
    place, _, path = name.rpartition(":")
    module = imported(place)
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        callables = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        near = difflib.get_close_matches(path, callables, n=3, cutoff=0.5)
        advice = f"; did you mean {' or '.join(near)}?" if near else ""
        instead = "" if found is None else f": it is {shown(found)}"
        if place == "__main__":
            instead, advice = "", f"; {OF_THE_PROGRAM}"
        raise PluginProblem(f"{place!r} has no callable {path!r}{instead}{advice}")
    return found  # type: ignore[no-any-return]


def imported(place: str) -> ModuleType:
    """The module, or file as `loaded` finds one, that is named so. Raises as `loaded` does."""
    return _of_file(Path(place)) if place.endswith(".py") else _module(place)


@contextmanager
def printing_aside() -> Iterator[None]:
    """What is printed meanwhile, by a user's code or by processes that are begun here, goes to standard error."""
    sys.stdout.flush()
    standard_output = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(standard_output, 1)
        os.close(standard_output)


def forget_files() -> None:
    """Unload what was loaded from files and from beside them, as before the first: the next ones may have the same names."""
    for path in files_loaded().values():
        for name in [name for name, module in sys.modules.items() if getattr(module, "__file__", None) == str(path)]:
            del sys.modules[name]
    sys.path[:] = [each for each in sys.path if each not in _folders]
    _folders.clear()
    _files.clear()
    importlib.invalidate_caches()


def files_loaded() -> dict[str, Path]:
    """The files that were loaded by ``file.py:factory``, and those that they import from beside them: the path of each from the
    folder that it is imported from (``env.py``, ``games/env.py``) -> its whole path."""
    folders = {os.path.realpath(path.parents[module.__name__.count(".")]) for path, module in _files.items()}
    found = {}
    for name, module in list(sys.modules.items()):
        stem, origin = name.replace(".", "/"), str(getattr(module, "__file__", None))
        for tail in (f"{stem}.py", f"{stem}/__init__.py"):
            if origin.endswith(f"/{tail}") and os.path.realpath(origin.removesuffix(f"/{tail}")) in folders:
                found[tail] = Path(origin)
    return found


def short(name: str) -> str:
    """``/home/me/plugins/qr_dqn.py:make`` -> ``qr_dqn.py:make``; any other name as it is."""
    place, colon, path = name.rpartition(":")
    return f"{Path(place).name}{colon}{path}" if place.endswith(".py") else name


def authors_line(error: BaseException) -> str:
    """The deepest line of a user's own code that an error came through, ``qr_dqn.py:83, in loss: ``; empty where none is."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}: "
    found = _deepest(traceback.extract_tb(error.__traceback__))
    return f"{found}: " if found else ""


def place_of(frame: FrameType) -> str:
    """The same of code that runs, ``qr_dqn.py:83, in loss``; where none of it is a user's own, its deepest line."""
    return _deepest(traceback.extract_stack(frame)) or _words(
        frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
    )


def _deepest(stack: traceback.StackSummary) -> str:
    for frame in reversed(stack):
        if any(frame.filename == own or frame.filename.startswith(f"{own}/") for own in _authors):
            return _words(frame.filename, frame.lineno, frame.name)
    return ""


def _words(file: str, line: int | None, function: str) -> str:
    return f"{Path(file).name}:{line}, in {function}"


def told(error: BaseException) -> str:
    """An error of a user's own code in one line: where, of which type, and what it says."""
    return f"{authors_line(error)}{named(error)}"


def shown(came: object) -> str:
    """What a user's function gave, in words: an array by its type and shape, small things as they are, of long ones the
    beginning."""
    dtype, shape = getattr(came, "dtype", None), getattr(came, "shape", None)
    # A space has a type and a shape, too, and no numbers.
    if (
        dtype is not None
        and isinstance(shape, tuple)
        and any(hasattr(came, way) for way in ("__array__", "__dlpack__"))
        and not isinstance(came, float | int)
    ):
        kind = "a tensor" if hasattr(came, "requires_grad") else "an array"
        if kind == "an array" and not shape:
            return f"{came} ({dtype})"
        return f"{kind} {str(dtype).removeprefix('torch.')} {list(shape)}"
    match came:
        case tuple():
            return f"{len(came)} values ({', '.join(map(shown, came))})" if len(came) < _MANY else f"{len(came)} values"
        case list() | set():
            return _begun(str(came), f" ({len(came)} values)")
        case None | int() | float():
            return str(came)
        case str():
            return _begun(repr(came), f" ({len(came)} characters)")
    return f"a {type(came).__name__}"


def _begun(text: str, whole: str) -> str:
    """A text that is too long for a line: its beginning, and how much there is of it."""
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]} ...{whole}"


def _of_file(path: Path) -> ModuleType:
    name = path.stem
    if not name.isidentifier():
        raise PluginProblem(f"{path}: a file is imported by its name, and {name!r} is no name in Python; rename it")
    if not path.is_file():
        if _spec(name) is None:
            raise NotBesideManifest(
                f"{path}: there is no such file, and no module {name!r} that can be imported in its place; one that has moved "
                "is found by PYTHONPATH=its folder"
            )
        return _module(name)
    path = path.absolute()
    if path not in _files:
        _authors.update(str(each) for folder in {path.parent, path.resolve().parent} for each in folder.glob("*.py"))
        _files[path] = _from_folder(path, name, path.parent)
    return _files[path]


def _from_folder(path: Path, name: str, folder: Path) -> ModuleType:
    """The file as the module ``name`` of ``folder``, also where another folder of a user's has one of that name; where it has
    relative imports, as one of the package around it."""
    top = name.partition(".")[0]
    other = getattr(_spec(top), "origin", None) or ""  # a file of the same name where the program works, say
    hidden = other and Path(other).resolve() != path.resolve() and "site-packages" not in other
    hidden = hidden and top not in sys.modules and top not in sys.stdlib_module_names
    if hidden or str(folder) not in sys.path:
        sys.path.insert(0 if hidden else len(sys.path), str(folder))
        _folders.add(str(folder))
        importlib.invalidate_caches()
    try:
        module = _module(name)
    except PluginProblem as problem:
        if "relative import" not in str(problem.__cause__):
            raise
        if not folder.name.isidentifier():
            raise PluginProblem(
                f"{path}: it belongs to a package, and {folder.name!r} is no name of one; rename the folder, or install the "
                "package and name package.module:factory"
            ) from problem
        sys.path[:] = [each for each in sys.path if each != str(folder) or each not in _folders]
        return _from_folder(path, f"{folder.name}.{name}", folder.parent)
    origin = getattr(module, "__file__", None)
    if origin is None or Path(origin).resolve() != path.resolve():
        raise PluginProblem(f"{path}: the name {name!r} is taken by {origin or 'a module of Python'}; rename the file")
    return module


def _module(name: str) -> ModuleType:
    top = name.partition(".")[0]
    if top not in sys.modules and _spec(top) is None:
        file = f"{top}.py"
        advice = f"; the file {file} that is here is named {file}:function" if Path(file).is_file() else ""
        raise NotHere(f"module {name!r} cannot be imported: ModuleNotFoundError: No module named {top!r}{advice}")
    by_a_user(top)
    try:
        return importlib.import_module(name)
    except PLUGIN_FAILURES as error:
        raise PluginProblem(f"module {name!r} cannot be imported: {told(error)}") from error


def by_a_user(module: str) -> None:
    """Have errors in this process name the line of this module, or of its package, that they came through."""
    top = module.partition(".")[0]
    if top not in _NOT_BY_USERS and top not in sys.stdlib_module_names and (spec := _spec(top)) is not None:
        _authors.update(spec.submodule_search_locations or ())
        _authors.update((spec.origin,) if spec.origin and not spec.submodule_search_locations else ())


def _spec(name: str) -> Any:
    try:
        return find_spec(name)
    except (ImportError, ValueError):  # of a module that has none, such as __main__
        return None


@contextmanager
def contained(*, making: bool = False) -> Iterator[None]:
    """Code of a user's within: what it sets for the whole process holds within, each time, and not outside. Torch's default
    device, slow to look at, is looked at where something is made, and in its steps if it was set there."""
    applied = dict(_theirs)
    device = making or _set_default_device in applied
    ours = _settings(device=device)
    for setting, theirs in applied.items():
        if ours[setting] != theirs:
            setting(theirs)
    try:
        yield
    finally:
        for setting, theirs in _settings(device=device).items():
            if theirs != ours.get(setting, theirs):
                _theirs[setting] = theirs
                setting(ours[setting])
            elif setting in applied:
                _theirs.pop(setting, None)


def _settings(*, device: bool) -> dict[Callable[[Any], Any], Any]:
    """What code may set for a whole process, by the function that sets it."""
    found: dict[Callable[[Any], Any], Any] = {logging.disable: logging.root.manager.disable}
    if (torch := sys.modules.get("torch")) is not None:
        found[torch.set_num_threads] = torch.get_num_threads()
        found[torch.set_default_dtype] = torch.get_default_dtype()
        if device:
            found[_set_default_device] = torch.empty(0).device
    return found


def _set_default_device(device: Any) -> None:
    sys.modules["torch"].set_default_device(
        None if device.type == "cpu" else device
    )  # with "cpu" torch asks at each new tensor
