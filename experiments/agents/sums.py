"""What the calculator computes: sums of numbers, without Python's own `eval`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Final

OPERATORS: Final[dict[type[ast.AST], Callable[..., float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}
FUNCTIONS: Final[dict[str, Callable[..., float]]] = {"min": min, "max": max, "abs": abs}


def value(expression: str) -> float:
    """Of an expression such as "max(2, 3) * 1.1". Raises ValueError, ZeroDivisionError."""
    try:
        return _value(ast.parse(expression, mode="eval").body)
    except (SyntaxError, KeyError, TypeError):
        raise ValueError(f"not a sum: {expression[:80]!r}") from None


def _value(node: ast.AST) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.BinOp(left=left, op=op, right=right):
            return OPERATORS[type(op)](_value(left), _value(right))
        case ast.UnaryOp(op=op, operand=operand):
            return OPERATORS[type(op)](_value(operand))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return FUNCTIONS[name](*map(_value, arguments))
    raise ValueError(f"not a sum: {ast.unparse(node)[:80]!r}")
