"""Mutants of functions, made from their source: each changes one expression or one statement.

A mutant is installed by giving the function another code object. So everyone calls it, wherever the function was
imported, and a process forked for one mutant ends with it.
"""

from __future__ import annotations

import ast
import copy
import gc
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

SKIPPED = (ast.JoinedStr, ast.Raise, ast.Assert, ast.arguments, ast.Import, ast.ImportFrom)
"""What a mutant leaves as it is: messages, checks of types, and signatures."""

OPERATORS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add,),
    ast.FloorDiv: (ast.Mult,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}

_PAIRS = "and_ or_, equal not_equal, is_null is_valid, greater greater_equal, less less_equal, any all, min max"
NAMES = {one: other for text in _PAIRS.split(", ") for one, other in (text.split(), text.split()[::-1])}
TEXTS = {"ascending": "descending", "descending": "ascending", "min": "max", "max": "min"}
EMPTY: dict[type[ast.AST], str] = {ast.ListComp: "[]", ast.DictComp: "{}", ast.SetComp: "set()", ast.Tuple: "()"}


class Place(NamedTuple):
    """Where a node stands: its number in the walk over the function, and the field that is changed."""

    number: int
    name: str
    index: int | None


@dataclass(frozen=True)
class CodeMutant:
    """One change of one function.

    Args:
        function: The qualified name of the function of the module.
        place: Where in the tree of the function `after` takes the place of `before`.
    """

    module: str
    function: str
    line: int
    place: Place
    before: Any
    after: ast.AST
    tree: ast.AST

    @property
    def name(self) -> str:
        """The mutant as one line."""
        old, new = (_text(each) for each in (self.before, self.after))
        return f"{self.module.removeprefix('widen.')}:{self.function}: {old} -> {new}"

    @cached_property
    def code(self) -> CodeType:
        """The compiled function."""
        *classes, name = self.function.split(".")
        tree: Any = _with(self.tree, self.place, self.after)
        for each in reversed(classes):
            tree = ast.ClassDef(each, bases=[], keywords=[], body=[tree], decorator_list=[])
        module = ast.fix_missing_locations(ast.Module([tree], []))
        flags = __import__("__future__").annotations.compiler_flag
        code = compile(module, sys.modules[self.module].__file__ or "", "exec", flags=flags, dont_inherit=True)
        for each in [*classes, name]:
            code = next(part for part in code.co_consts if isinstance(part, CodeType) and part.co_name == each)
        return code

    def install(self, functions: Sequence[FunctionType]) -> bool:
        """Put the mutant in the place of the function for the rest of this process; False if it has no such place."""
        for function in functions:
            if len(function.__code__.co_freevars) != len(self.code.co_freevars):
                return False
            function.__code__ = self.code
        return bool(functions)


def functions_of(modules: Collection[str]) -> dict[tuple[str, str], list[FunctionType]]:
    """Return the function objects of some modules by module and qualified name, also where something wraps them."""
    found: dict[tuple[str, str], list[FunctionType]] = {}
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__module__ in modules:
            found.setdefault((each.__module__, each.__qualname__), []).append(each)
    return found


def find_mutants(module: str) -> Iterator[CodeMutant]:
    """Yield all mutants of the functions of a module, in the order of its text."""
    path = sys.modules[module].__file__
    assert path is not None
    for names, function in _functions(ast.parse(Path(path).read_text(encoding="utf-8")), ()):
        nodes = list(ast.walk(function))
        for number, node in enumerate(nodes):
            for place, old, new in _changes(number, node):
                if _is_inside(function, node, SKIPPED) or (isinstance(old, ast.AST) and isinstance(old, SKIPPED[:1])):
                    continue
                yield CodeMutant(module, ".".join(names), old.lineno, place, old, new, function)


def _functions(tree: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, (*names, node.name))
        elif isinstance(node, ast.FunctionDef):
            yield (*names, node.name), node


def _is_inside(function: ast.AST, node: ast.AST, kinds: tuple[type[ast.AST], ...]) -> bool:
    inside = _INSIDE.get(id(function))
    if inside is None:
        _INSIDE.clear()
        inside = _INSIDE[id(function)] = set()
        for each in ast.walk(function):
            if isinstance(each, kinds):
                inside |= {id(inner) for inner in ast.walk(each)}
            for annotation in (getattr(each, "annotation", None), getattr(each, "returns", None)):
                if annotation is not None:
                    inside |= {id(inner) for inner in ast.walk(annotation)}
            for decorator in getattr(each, "decorator_list", ()):
                inside |= {id(inner) for inner in ast.walk(decorator)}
    return id(node) in inside


_INSIDE: dict[int, set[int]] = {}


def _changes(number: int, node: ast.AST) -> Iterator[tuple[Place, Any, Any]]:
    """Yield the changes of the fields of a node: the place, and what is there before and after."""
    for name, value in ast.iter_fields(node):
        for index, each in enumerate(value) if isinstance(value, list) else [(None, value)]:
            place = Place(number, name, index)
            if isinstance(each, ast.expr):
                if name in ("annotation", "returns", "decorator_list") or isinstance(node, ast.Expr):
                    continue
                if isinstance(node, (ast.If, ast.IfExp, ast.While)) and name == "test":
                    yield place, each, ast.Constant(value=False)
                    if not isinstance(node, ast.While):
                        yield place, each, ast.Constant(value=True)
                if isinstance(node, ast.Return) and not (isinstance(each, ast.Constant) and each.value is None):
                    yield place, each, ast.Constant(value=None)
                if name == "ifs":
                    yield place, each, ast.Constant(value=True)
                if isinstance(node, (ast.For, ast.comprehension)) and name == "iter":
                    yield place, each, _parsed(f"list({ast.unparse(each)})[1:]")
                for new in _replacements(each):
                    yield place, each, new
            elif isinstance(each, ast.stmt) and name in ("body", "orelse", "finalbody") and _is_droppable(each):
                yield place, each, ast.Pass()


def _is_droppable(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(ast.Constant()):
            return False
        case ast.Expr() | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break() | ast.Delete():
            return True
        case ast.Assign([ast.Attribute() | ast.Subscript()]):
            return True
    return False


def _replacements(node: ast.expr) -> Iterator[ast.expr]:
    """Yield what may stand in the place of an expression."""
    match node:
        case ast.Compare(left, [operator], [right]):
            for other in OPERATORS.get(type(operator), ()):
                yield ast.Compare(left, [other()], [right])
        case ast.Compare(left, operators, rights):
            for at, operator in enumerate(operators):
                for other in OPERATORS.get(type(operator), ()):
                    yield ast.Compare(left, [*operators[:at], other(), *operators[at + 1 :]], rights)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(OPERATORS[type(operator)][0](), values)
            for at in range(len(values)):
                rest = [*values[:at], *values[at + 1 :]]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(operator, rest)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.IfExp(_, body, orelse):
            yield body
            yield orelse
        case ast.BinOp(left, operator, right):
            for other in OPERATORS.get(type(operator), ()):
                yield ast.BinOp(left, other(), right)
            if isinstance(operator, (ast.Add, ast.BitOr, ast.Sub, ast.BitAnd)):
                yield left
                yield right
        case ast.Constant(bool() as value):
            yield ast.Constant(value=not value)
        case ast.Constant(int() as value):
            yield ast.Constant(value=value + 1)
            if value:
                yield ast.Constant(value=value - 1)
        case ast.Constant(str() as value):
            yield ast.Constant(value=TEXTS.get(value, "" if value else "x"))
        case ast.Call(ast.Attribute(receiver, name), arguments):
            if name in NAMES:
                yield ast.Call(ast.Attribute(receiver, NAMES[name], ast.Load()), arguments, node.keywords)
            if name in ("invert", "fill_null", "cast", "abs", "ceil", "floor") and isinstance(receiver, ast.Name):
                yield arguments[0]
            if name in ("filter", "drop_null", "lower", "strip", "sort_by", "slice", "cast", "take", "combine_chunks"):
                yield receiver
            yield from _swapped(node)
        case ast.Call(ast.Name(name), arguments):
            if name in NAMES:
                yield ast.Call(ast.Name(NAMES[name], ast.Load()), arguments, node.keywords)
            if name in ("sorted", "reversed", "abs", "set", "frozenset") and arguments:
                yield _parsed(f"list({ast.unparse(arguments[0])})")
            yield from _swapped(node)
        case ast.Subscript(value, ast.Slice(lower, upper, step)):
            if lower is not None:
                yield ast.Subscript(value, ast.Slice(None, upper, step), ast.Load())
            if upper is not None:
                yield ast.Subscript(value, ast.Slice(lower, None, step), ast.Load())
        case ast.ListComp() | ast.DictComp() | ast.SetComp():
            yield _parsed(EMPTY[type(node)])
        case ast.Dict(keys, values) if len(keys) > 0:
            for at in range(len(keys)):
                yield ast.Dict([*keys[:at], *keys[at + 1 :]], [*values[:at], *values[at + 1 :]])


def _swapped(node: ast.Call) -> Iterator[ast.expr]:
    match node.args:
        case [first, second, *rest] if not any(isinstance(each, ast.Starred) for each in (first, second)):
            if ast.dump(first) != ast.dump(second):
                yield ast.Call(node.func, [second, first, *rest], node.keywords)


def _with(function: ast.AST, place: Place, new: ast.AST) -> ast.AST:
    changed = copy.deepcopy(function)
    node = next(each for number, each in enumerate(ast.walk(changed)) if number == place.number)
    if place.index is None:
        setattr(node, place.name, copy.deepcopy(new))
    else:
        getattr(node, place.name)[place.index] = copy.deepcopy(new)
    changed.decorator_list = []  # type: ignore[attr-defined]
    return changed


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(ast.fix_missing_locations(copy.deepcopy(node))).split())
