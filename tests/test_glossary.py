"""One name for one thing: the package's public names and its registries against the glossary of contributing.md.

A name fails where two different things share it, or where it uses a word for which the glossary has another one. What
fails today and is to be renamed stands in ``SHARED`` and ``OTHER_WORDS``. Who renames it strikes its line.
"""

import ast
import importlib
import inspect
import re
import types
import typing
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bo_robust.algorithms import ALGORITHMS
from bo_robust.methods import METHODS

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "bo_robust"
PAGE = (ROOT / "docs" / "pages" / "contributing.md").read_text(encoding="utf-8")
GLOSSARY = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in PAGE.split("## One word for one thing")[1].split("\n## ")[0].splitlines()
    if line.startswith("| `")
]
COMMON_SUFFIXES = ("Algorithm", "Method", "Width", "Truncation", "Features", "Map")

# Names that two things share. "Rename" is work to do; "stays" is decided.
SHARED: dict[str, str] = {
    "VUCB": "stays: one method with two faces, over arms and over (x, z)",
    "key random": "stays: one method with two faces, over arms and over (x, z)",
    "key v-ucb": "stays: one method with one default; runs play it by a class of their own",
    "GPUCB": "stays: one method with two faces, an acquisition and a rule over arms",
    "StableOpt": "stays: one method with two faces, an acquisition and a rule over arms",
    "app": "stays: two command lines",
    "count": "stays: a posterior's own step, read as dtc.count; dtc_single is the same for one trial",
    "downdate": "stays: a posterior's own step; dtc_single is the same for one trial",
    "init": "stays: of each posterior over arms, read as arms.init",
    "key nystrom": "stays: features of a run over arms, and the map of a BoTorch model",
    "observe": "stays: of each posterior over arms, read as arms.observe",
    "rebuild": "stays: a posterior's own step; dtc_single is the same for one trial",
    "resume": "stays: the command, and the function that it calls",
}
# Names that use a word which the glossary replaces, or a word outside its rooms, as NAME, FILE.
OTHER_WORDS: dict[tuple[str, str], str] = {
    ("WorkerLost", "executors.py"): "stays: a worker is lost, not a reward",
    ("LOST", "integrations/ray.py"): "stays: a worker is lost, not a reward",
    ("form", "ops/dtc_scores/fused.py"): "stays: the formula of a covariance, not of an elimination",
    ("Form", "ops/dtc_scores/naive.py"): "stays: the formula of a covariance, not of an elimination",
    ("form_of", "ops/dtc_scores/naive.py"): "stays: the formula of a covariance, not of an elimination",
    ("risk_level", "methods/v_ucb.py"): "stays: the level of a risk, said in full",
}


class Name(NamedTuple):
    """A public name: what it is ("class", "function", "constant", "setting", "argument" or "method") and where."""

    name: str
    kind: str
    file: str


def parts(name: str) -> set[str]:
    """Words of a name in lower case: of ``MoMGroups_left`` they are mo, m, groups and left."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)}


def names_of(path: Path) -> list[Name]:
    """Public names of a file: top-level ones, fields and methods of public classes, arguments."""
    found = []
    file = path.relative_to(PACKAGE).as_posix()

    def add(name: str, kind: str) -> None:
        if not name.startswith("_"):
            found.append(Name(name, kind, file))

    def add_arguments(function: ast.FunctionDef) -> None:
        given = function.args
        for argument in [*given.posonlyargs, *given.args, *given.kwonlyargs]:
            if argument.arg not in ("self", "cls"):
                add(argument.arg, "argument")

    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    add(target.id, "constant")
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            add(node.name, "function")
            add_arguments(node)
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            add(node.name, "class")
            for member in node.body:
                if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                    add(member.target.id, "setting")
                elif isinstance(member, ast.FunctionDef):
                    add(member.name, "method")
                    if member.name == "__init__" or not member.name.startswith("_"):
                        add_arguments(member)
    return sorted(set(found))


NAMES = [name for path in sorted(PACKAGE.rglob("*.py")) for name in names_of(path)]


def registries() -> dict[str, dict[str, Any]]:
    """Public dictionaries from names to classes or functions, by "file: NAME": what a configuration or a user names."""
    found = {}
    for name in NAMES:
        if name.kind != "constant" or not name.name.isupper():
            continue
        if not re.search(rf"^{name.name}: dict\[str, (type|Callable)\[", (PACKAGE / name.file).read_text(), flags=re.M):
            continue
        module = ".".join(("bo_robust", *Path(name.file).with_suffix("").parts)).removesuffix(".__init__")
        entries = getattr(importlib.import_module(module), name.name)
        if all(getattr(entry, "__module__", "").startswith("bo_robust") for entry in entries.values()):
            found[f"{name.file}: {name.name}"] = entries
    return found


REGISTRIES = registries()


def stem(registered: Any) -> str:
    """Name of a class without what it is: of ``TGPWidth`` and ``TGPTruncation`` it is TGP."""
    name: str = registered.__name__
    for suffix in COMMON_SUFFIXES:
        if name != suffix:
            name = name.removesuffix(suffix)
    return name


def value_of(name: Name) -> str:
    """What a constant is assigned, as text."""
    tree = ast.parse((PACKAGE / name.file).read_text(encoding="utf-8"))
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name.name for target in targets):
            return ast.unparse(node.value)  # type: ignore[attr-defined]
    raise AssertionError(name)


def is_own_number(name: Name) -> bool:
    """Whether it is a plain number, such as a size of chunks: each file may have its own."""
    return name.kind == "constant" and not re.search(r"[a-zA-Z'\"({\[]", value_of(name))


def shared_names() -> dict[str, list[str]]:
    """Top-level names that two files define, with the files; the files of one op count as one."""
    homes = defaultdict(set)
    numbers = defaultdict(list)
    for name in NAMES:
        if name.kind not in ("class", "function", "constant"):
            continue
        if is_own_number(name):
            numbers[name.name].append(name)
        else:
            folder = re.match(r"ops/\w+/", name.file)
            homes[name.name].add(folder.group() if folder else name.file)
    for key, same in numbers.items():  # the same number twice is one thing with two homes
        values = [value_of(name) for name in same]
        homes[key] |= {name.file for name, value in zip(same, values, strict=True) if values.count(value) > 1}
    return {key: sorted(files) for key, files in homes.items() if len(files) > 1}


def shared_keys() -> dict[str, list[str]]:
    """Keys of registries that stand for two things.

    A method over arms and over (x, z) is one thing, and so are a method, its width and its truncation: their classes
    differ in the suffix. Registries of experiments/ may repeat a method's name for its own class only.
    """
    owners = defaultdict(list)
    for registry, entries in REGISTRIES.items():
        for key, registered in entries.items():
            owners[key].append((registry, registered))
    wrong = {}
    for key, entries in owners.items():
        classes = {registered for _, registered in entries}
        methods = {registry for registry, _ in entries if key in ALGORITHMS or key in METHODS}
        foreign = any(registry.startswith("experiments/") for registry in methods) and len(classes) > 1
        if len({stem(registered) for registered in classes}) > 1 or foreign:
            wrong[f"key {key}"] = sorted(registry for registry, _ in entries)
    return wrong


def families(annotation: Any) -> set[str]:
    """Kinds of value that a setting takes: number, text, flag, object, or anything."""
    if annotation in (Any, inspect.Parameter.empty):
        return {"anything"}
    if isinstance(annotation, str):
        annotation = {"float": float, "int": int, "str": str, "bool": bool}.get(annotation.removesuffix(" | None"), Any)
        return families(annotation)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return set().union(*(families(a) for a in typing.get_args(annotation) if a is not type(None)))
    simple = {int: "number", float: "number", str: "text", bool: "flag"}
    return {simple.get(annotation, "object")}


def settings() -> dict[str, list[tuple[str, set[str]]]]:
    """Settings of everything that is registered: by name, who has it and which kinds of value it takes."""
    found = defaultdict(list)
    for registry, entries in REGISTRIES.items():
        for key, registered in entries.items():
            for name, parameter in inspect.signature(registered).parameters.items():
                found[name].append((f"{registry}: {key}", families(parameter.annotation)))
    return found


def shared_settings() -> dict[str, list[str]]:
    """Settings of one name that take a number here and a text or an object there."""
    wrong = {}
    for name, owners in settings().items():
        first = [kinds for _, kinds in owners if "anything" not in kinds]
        if any(not kinds & other for kinds in first for other in first):
            wrong[f"setting {name}"] = sorted(owner for owner, _ in owners)
    return wrong


def yaml_keys() -> set[Name]:
    """What a configuration may set: fields of its models and of everything registered."""
    fields = {name for name in NAMES if name.file == "experiments/config.py" and name.kind == "setting"}
    return fields | {Name(name, "setting", owners[0][0].split(":")[0]) for name, owners in settings().items()}


def other_words() -> dict[tuple[str, str], str]:
    """Names with a word that the glossary replaces, or with a word outside its rooms; each with what is said instead.

    The third column lists words: a plain one may be no part of a name, one marked *alone* no whole name, one marked
    *in YAML* no key of a configuration. The fourth lists the only rooms or files where the row's words may be names.
    """
    wrong = {}
    for words, _, replaced, homes in GLOSSARY:
        said = ", ".join(re.findall(r"`(\w+)`", words))
        for word, mark in re.findall(r"`(\w+)`( alone| in YAML)?", replaced):
            among = yaml_keys() if mark == " in YAML" else NAMES
            for name in among:
                if name.name.lower() == word or (not mark and word in parts(name.name)):
                    wrong[name.name, name.file] = f"not {word} but {said}"
        allowed = tuple(re.findall(r"`([\w/.]+)`", homes))
        for name in NAMES if allowed else []:
            own = {form for word in re.findall(r"`(\w+)`", words) for form in (word, f"{word}s")}
            if own & parts(name.name) and not name.file.startswith(allowed):
                wrong[name.name, name.file] = f"{said} is a word of {', '.join(allowed)}"
    return wrong


def test_the_glossary_is_read():
    assert len(GLOSSARY) >= 20
    assert [row for row in GLOSSARY if len(row) != 4] == []
    assert parts("MoMGroups_left") == {"mo", "m", "groups", "left"}


def test_no_name_has_two_meanings():
    found = shared_names() | shared_keys() | shared_settings()
    assert {name: files for name, files in found.items() if name not in SHARED} == {}


def test_no_meaning_has_two_names():
    found = other_words()
    assert {name: why for name, why in found.items() if name not in OTHER_WORDS} == {}


def test_no_registry_has_one_thing_twice():
    twice = {name for name, entries in REGISTRIES.items() if len(set(entries.values())) < len(entries)}
    assert twice == set()


def test_what_was_renamed_is_struck_from_the_lists():
    gone = SHARED.keys() - (shared_names() | shared_keys() | shared_settings()).keys()
    assert (gone, OTHER_WORDS.keys() - other_words().keys()) == (set(), set()), "renamed: strike their lines"


@pytest.mark.parametrize("reason", [*SHARED.values(), *OTHER_WORDS.values()])
def test_an_exception_has_its_reason(reason):
    assert len(reason.split()) >= 3
