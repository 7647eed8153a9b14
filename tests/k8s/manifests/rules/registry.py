"""The rules by their names."""

from collections.abc import Callable, Iterator

from tests.k8s.manifests.view import Rendered

Rule = Callable[[Rendered], Iterator[str]]
"""Yields a sentence for each thing that is wrong."""

RULES: dict[str, Rule] = {}


def rule(function: Rule) -> Rule:
    """Make a function a rule, by its own name."""
    RULES[function.__name__] = function
    return function
