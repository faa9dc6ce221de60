"""Mutants of a file: one expression or statement of one function is another. And a stratified sample of them."""

from __future__ import annotations

import ast
import copy
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

__all__ = ["Row", "files", "found_again", "mutants", "name_of", "sample"]

OTHERS: dict[type, list[type]] = {ast.Pow: [ast.Mult], ast.FloorDiv: [ast.Div], ast.Mod: [ast.FloorDiv]}
for a, b in ((ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)):
    OTHERS |= {a: [b], b: [a]}
OTHERS |= {ast.Lt: [ast.LtE, ast.GtE], ast.LtE: [ast.Lt, ast.Gt], ast.Gt: [ast.GtE, ast.LtE], ast.GtE: [ast.Gt, ast.Lt]}
PAIRS = "min max,amin amax,argmin argmax,minimum maximum,clamp_min clamp_max,floor ceil,any all"
SWAPS = {a: b for pair in PAIRS.split(",") for a, b in (pair.split(), pair.split()[::-1])}
Row = dict[str, Any]


def changed(node: Any, **fields: Any) -> Any:
    """A copy with other fields."""
    new = copy.copy(node)
    vars(new).update(fields)
    return new


def wrong(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Kinds of mistakes, and what stands there then."""
    match node:
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                for other in OTHERS[type(op)]:
                    yield "comparison", changed(node, ops=[*ops[:i], other(), *ops[i + 1 :]])
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in OTHERS:
            yield "arithmetic", changed(node, op=OTHERS[type(op)][0]())
        case ast.UnaryOp(op=ast.USub() | ast.Not() as op, operand=operand):
            yield "boolean" if isinstance(op, ast.Not) else "arithmetic", operand
        case ast.BoolOp(op=op):
            yield "boolean", changed(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.Constant(value=bool(value)):
            yield "boolean", ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield from (("constant", ast.Constant(new)) for new in dict.fromkeys([value + 1, 2 * value, 0 * value]))
        case ast.Call(func=ast.Name(id=name)) if name in SWAPS:
            yield "swap", changed(node, func=ast.Name(SWAPS[name]))
        case ast.Call(func=ast.Attribute(attr=name)) if name in SWAPS:
            yield "swap", changed(node, func=changed(node.func, attr=SWAPS[name]))
        case ast.Slice(lower=lower, upper=upper):
            if lower is not None:
                yield "slice", changed(node, lower=ast.BinOp(lower, ast.Add(), ast.Constant(1)))
            if upper is not None:
                yield "slice", changed(node, upper=ast.BinOp(upper, ast.Sub(), ast.Constant(1)))
        case ast.Return(value=ast.expr()):
            yield "return", ast.Return(ast.Constant(None))
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield "removed", ast.Pass()


def digest(node: ast.FunctionDef | ast.ClassDef) -> str:
    """What tells a function's statements, without its documentation, from every other's."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return hashlib.sha256(ast.unparse(changed(node, body=body or [ast.Pass()])).encode()).hexdigest()[:16]


def mutants(path: Path, root: Path) -> list[Row]:
    """Every mutant of a file's functions; errors, types, defaults and texts stay."""
    text = path.read_bytes()
    starts = [0]
    for part in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(part))
    found: list[Row] = []

    def add(kind: str, old: Any, new: ast.AST, function: str, source: str, first: int) -> None:
        before, after = ast.unparse(old), ast.unparse(new)
        if before == after:
            return
        begin, end = starts[old.lineno - 1] + old.col_offset, starts[old.end_lineno - 1] + old.end_col_offset
        put = after if isinstance(old, ast.stmt | ast.Slice) else f"({after})"
        row = {"file": str(path.relative_to(root)), "line": old.lineno, "function": function, "kind": kind}
        row |= {"source": source}
        row |= {"code": text.splitlines()[old.lineno - 1].decode().strip(), "before": before, "after": after}
        found.append(row | {"lines": range(first, old.end_lineno + 1), "edit": (begin, end, put)})

    def visit(node: Any, name: str, source: str, first: int) -> None:
        if isinstance(node, ast.Raise | ast.JoinedStr | None):
            return
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef | ast.ClassDef) or isinstance(node, ast.FunctionDef):
                    visit(part, f"{name}.{node.name}".strip("."), digest(node), 0)
            return
        first = node.lineno if isinstance(node, ast.stmt) else first
        for kind, new in wrong(node):
            add(kind, node, new, name, source, first)
        if isinstance(node, ast.If):
            add("boolean", node.test, ast.UnaryOp(ast.Not(), node.test), name, source, first)
        typed = isinstance(node, ast.AnnAssign)
        for child in [node.value] if typed else ast.iter_child_nodes(node):
            visit(child, name, source, first)

    for top in ast.parse(text).body:
        if isinstance(top, ast.FunctionDef | ast.ClassDef):
            visit(top, "", "", 0)
    return found


def files(package: Path, room: str, prefix: str = "") -> list[Path]:
    """Python files of a room, or of its tests."""
    return sorted((package / room).rglob(f"{prefix}*.py")) or [package / f"{prefix}{room}.py"]


def name_of(row: Row) -> tuple[str, ...]:
    """What makes two mutants the same, also after lines moved."""
    return tuple(row[name] for name in ("file", "function", "code", "before", "after"))


def drawn(row: Row, seed: int) -> str:
    """A mutant's place in the order of a seed."""
    return hashlib.sha256(repr((seed, *name_of(row))).encode()).hexdigest()


def sample(root: Path, rooms: Mapping[str, int], seed: int, played: Iterable[tuple[str, ...]] = ()) -> list[Row]:
    """So many mutants of every room, rooms and their kinds in turn, and one of each room that changes nothing.

    Those ``played`` before come first, and then the order is that of hashes: a sample goes on when the package changes.
    """
    rank = {name: i for i, name in enumerate(played)}

    def order(mutant: Row) -> tuple[int, str]:
        return rank.get(name_of(mutant), len(rank)), drawn(mutant, seed)

    chosen = []
    for room, each in rooms.items():
        found = [mutant | {"room": room} for path in files(root / "bo_robust", room) for mutant in mutants(path, root)]
        kinds = defaultdict(list)
        for mutant in sorted({name_of(mutant): mutant for mutant in found}.values(), key=order):
            kinds[mutant["kind"]].append(mutant)
        turns = [group[i] for i in range(each) for _, group in sorted(kinds.items()) if i < len(group)][:each]
        chosen.append([*turns, turns[0] | {"kind": "unchanged", "after": turns[0]["before"], "edit": (0, 0, "")}])
    return [mutant for turn in zip_longest(*chosen) for mutant in turn if mutant]


def found_again(root: Path, rows: Iterable[Row], seed: int) -> list[tuple[Row, Row]]:
    """Rows, rooms in turn and in the order of the seed, whose mutants the tree still has, each with its mutant.

    A mutant is the same where its file and function hold its line, or where a function of the same statements stands
    in another file or by another name.
    """
    tree = [mutant for path in sorted((root / "bo_robust").rglob("*.py")) for mutant in mutants(path, root)]
    named = {name_of(mutant): mutant for mutant in tree}
    moved = {(mutant["source"], *name_of(mutant)[2:]): mutant for mutant in tree}
    rooms = defaultdict(list)
    for row in sorted(rows, key=lambda row: drawn(row, seed)):
        mutant = named.get(name_of(row)) or moved.get((row["source"], *name_of(row)[2:]))
        if mutant is not None:
            rooms[row["room"]].append((row, mutant | {"room": row["room"]}))
    return [pair for turn in zip_longest(*rooms.values()) for pair in turn if pair]
