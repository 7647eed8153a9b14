"""Evaluate the PromQL that manifests and alerts use, at one instant.

The parser is promql-parser's, and the semantics are those of
https://prometheus.io/docs/prometheus/latest/querying/. What is not used here is rejected.
"""

import operator
import re
from collections.abc import Callable, Mapping
from functools import cache

import promql_parser as ast

from bench.harness.promql.functions import AGGREGATES, OVER_TIME
from bench.harness.promql.series import Labels, SeriesStore

LOOKBACK_SECONDS = 300.0
"""How old the last sample of a series may be."""
Vector = dict[Labels, float]
Value = float | Vector

_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: a / b if b else (float("nan") if not a else a * float("inf")),
}
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}


class PromQLError(ValueError):
    """An expression is wrong, or uses what is not supported here."""


def evaluate(text: str, store: SeriesStore, at: float) -> Value:
    """Return the value of an expression at `at` seconds: a number, or values by labels.

    Raises:
        PromQLError: it is no PromQL, or uses what is not supported here.
    """
    return _Evaluation(store, at).value(_parse(text))


@cache
def _parse(text: str) -> ast.Expr:
    try:
        return ast.parse(text)
    except ValueError as error:
        raise PromQLError(f"{text!r} is not PromQL: {error}") from error


class _Evaluation:
    """One evaluation: of which series, and when."""

    def __init__(self, store: SeriesStore, at: float) -> None:
        self._store = store
        self._at = at

    def value(self, node: ast.Expr) -> Value:
        match node:
            case ast.NumberLiteral():
                return float(node.val)
            case ast.ParenExpr():
                return self.value(node.expr)
            case ast.VectorSelector():
                return self._instant(node)
            case ast.Call():
                return self._call(node)
            case ast.AggregateExpr():
                return self._aggregate(node)
            case ast.BinaryExpr():
                return self._binary(node)
        raise PromQLError(f"{type(node).__name__} is not supported: {node.prettify()}")

    def vector(self, node: ast.Expr) -> Vector:
        value = self.value(node)
        if isinstance(value, float):
            raise PromQLError(f"{node.prettify()} is a number, not a vector")
        return value

    def _instant(self, node: ast.VectorSelector) -> Vector:
        found = self._store.select(_matcher(node), self._at - LOOKBACK_SECONDS, self._at)
        return {labels: samples[-1][1] for labels, samples in found}

    def _call(self, node: ast.Call) -> Value:
        name = node.func.name
        if name == "time":
            return self._at
        over = OVER_TIME.get(name)
        if over is None or not isinstance(node.args[0], ast.MatrixSelector):
            raise PromQLError(f"{name}() is not supported: {node.prettify()}")
        matrix = node.args[0]
        seconds = matrix.range.total_seconds()
        selector = _matcher(matrix.vector_selector)
        found = self._store.select(selector, self._at - seconds, self._at)
        values = {labels: over(samples, seconds, self._at) for labels, samples in found}
        keep = name == "last_over_time"
        return {
            labels if keep else _without_name(labels): value
            for labels, value in values.items()
            if value is not None
        }

    def _aggregate(self, node: ast.AggregateExpr) -> Vector:
        function = AGGREGATES.get(str(node.op))
        if function is None:
            raise PromQLError(f"{node.op} is not supported: {node.prettify()}")
        groups: dict[Labels, list[float]] = {}
        for labels, value in self.vector(node.expr).items():
            groups.setdefault(_grouped(labels, node.modifier), []).append(value)
        return {labels: function(values) for labels, values in groups.items()}

    def _binary(self, node: ast.BinaryExpr) -> Value:
        left, right, op = self.value(node.lhs), self.value(node.rhs), str(node.op)
        returns_bool = node.modifier is not None and node.modifier.return_bool
        if isinstance(left, float) and isinstance(right, float):
            if op in _COMPARISONS:
                return float(_COMPARISONS[op](left, right))
            return _combine(op, left, right)
        pairs: list[tuple[Labels, Labels, float, float]]
        if isinstance(right, float):
            pairs = [(one, _without_name(one), a, right) for one, a in left.items()]  # type: ignore[union-attr]
        elif isinstance(left, float):
            pairs = [(one, _without_name(one), left, b) for one, b in right.items()]
        else:
            pairs = _matched(node, left, right)
        if op not in _COMPARISONS:
            return {result: _combine(op, a, b) for _, result, a, b in pairs}
        holds = _COMPARISONS[op]
        if returns_bool:
            return {result: float(holds(a, b)) for _, result, a, b in pairs}
        kept = pairs if not isinstance(left, float) else [(o, r, b, a) for o, r, a, b in pairs]
        return {
            labels: value
            for (labels, _, value, _), (_, _, a, b) in zip(kept, pairs, strict=True)
            if holds(a, b)
        }


def _combine(op: str, left: float, right: float) -> float:
    function = _ARITHMETIC.get(op)
    if function is None:
        raise PromQLError(f"the operator {op} is not supported")
    return function(left, right)


def _matched(
    node: ast.BinaryExpr, left: Vector, right: Vector
) -> list[tuple[Labels, Labels, float, float]]:
    """Return the pairs of a one-to-one match: labels of the left one, of the result, values."""
    modifier = node.modifier
    if modifier is not None and modifier.card != ast.VectorMatchCardinality.OneToOne:
        raise PromQLError(f"only one-to-one matches are supported: {node.prettify()}")
    matching = modifier.matching if modifier is not None else None
    partners: dict[Labels, float] = {}
    for labels, value in right.items():
        key = _matching(labels, matching)
        if key in partners:
            raise PromQLError(f"several series match on the right of {node.prettify()}")
        partners[key] = value
    pairs: dict[Labels, tuple[Labels, Labels, float, float]] = {}
    for labels, value in left.items():
        key = _matching(labels, matching)
        if key in pairs:
            raise PromQLError(f"several series match on the left of {node.prettify()}")
        if key in partners:
            kept = labels if matching is None else key
            pairs[key] = (kept, key, value, partners[key])
    return list(pairs.values())


def _matching(labels: Labels, matching: ast.LabelModifier | None) -> Labels:
    if matching is None:
        return _without_name(labels)
    chosen = matching.type == ast.LabelModifierType.Include
    return frozenset(one for one in _without_name(labels) if (one[0] in matching.labels) == chosen)


def _grouped(labels: Labels, modifier: ast.AggModifier | None) -> Labels:
    if modifier is None:
        return frozenset()
    by = modifier.type == ast.AggModifierType.By
    return frozenset(one for one in _without_name(labels) if (one[0] in modifier.labels) == by)


def _without_name(labels: Labels) -> Labels:
    return frozenset(one for one in labels if one[0] != "__name__")


def _matcher(node: ast.VectorSelector) -> Callable[[Mapping[str, str]], bool]:
    if node.offset is not None or node.at is not None or node.matchers.or_matchers:
        raise PromQLError(f"offset, @ and `or` are not supported: {node.prettify()}")
    wanted = [(one.op, one.name, one.value) for one in node.matchers.matchers]

    def matches(labels: Mapping[str, str]) -> bool:
        if node.name is not None and labels["__name__"] != node.name:
            return False
        return all(_holds(op, labels.get(name, ""), value) for op, name, value in wanted)

    return matches


def _holds(op: ast.MatchOp, found: str, value: str) -> bool:
    if op == ast.MatchOp.Equal:
        return found == value
    if op == ast.MatchOp.NotEqual:
        return found != value
    found_all = re.fullmatch(value, found) is not None
    return found_all if op == ast.MatchOp.Re else not found_all
