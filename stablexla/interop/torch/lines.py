"""The user's lines of a graph's nodes, which PyTorch keeps as the text of a stack trace."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable
from functools import cache, partial
from linecache import getline
from types import CodeType, FunctionType
from typing import Any

from stablexla.dialects.errors import SourceLine
from stablexla.dialects.source_files import is_library

_LINE = re.compile(r'File "([^"\n]+)", line (\d+), in (\S+)')


def called_from(node: Any, function: Callable[[], Any]) -> Any:
    """Call a function from the user's lines of a node: the builder takes an operation's place from its stack."""
    for file, line, name in reversed(_users_lines(node)):
        function = partial(_frame(file, line, name), function)
    return function()


def line_of(node: Any) -> SourceLine | None:
    """Return the user's innermost line of a node."""
    lines = _users_lines(node)
    return SourceLine(*lines[-1], text=getline(*lines[-1][:2]).strip()) if lines else None


def _users_lines(node: Any) -> list[tuple[str, int, str]]:
    found = _LINE.findall(node.meta.get("stack_trace") or "")
    return [(file, int(line), name) for file, line, name in found if not is_library(file)]


@cache
def _frame(file: str, line: int, name: str) -> Callable[[Callable[[], Any]], Any]:
    """Return a function that calls another one, and whose frame on the stack is of this line."""
    tree = ast.parse("lambda function: function()", mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.expr | ast.arg):
            node.lineno = node.end_lineno = line
            node.col_offset = node.end_col_offset = 0
    (code,) = (c for c in builtins.compile(tree, file, "eval").co_consts if isinstance(c, CodeType))
    return FunctionType(code.replace(co_name=name, co_qualname=name), {})
