"""Components in any order give the same objects, and keep every rule with any other component."""

import itertools
from typing import Any

import pytest

from tests.k8s.manifests.render import RENDERINGS, Object, together
from tests.k8s.manifests.rules import RULES
from tests.k8s.manifests.view import Rendered, title
from tests.k8s.rendered.test_manifests import EXCEPTIONS

pytestmark = pytest.mark.xdist_group("manifests")

EVERY = tuple(name for name in RENDERINGS if name.startswith("components/"))
MODELS = tuple(name for name in EVERY if name.startswith("components/model-"))
GPUS = ("components/gpu", "components/gpu-claim")
SCALERS = ("components/autoscaling", "components/scale-to-zero")
OTHERS = tuple(name for name in EVERY if name not in (*MODELS, *GPUS, *SCALERS))
PAIRS = tuple(
    pair
    for pair in itertools.combinations(EVERY, 2)
    if not any(set(pair) <= set(group) for group in (MODELS, GPUS, SCALERS))
)
"""Any two, but of those that say to use one of them."""


@pytest.mark.parametrize(
    ("model", "gpu", "scaler"),
    list(zip(MODELS, itertools.cycle(GPUS), itertools.cycle(SCALERS), strict=False)),
)
def test_all_together_in_any_order(model: str, gpu: str, scaler: str) -> None:
    """An order and its reverse have any two in both orders."""
    chosen = (*OTHERS, model, gpu, scaler)
    assert not _broken(chosen)
    _assert_same(chosen, chosen[::-1])


@pytest.mark.k8s  # minutes
@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
def test_two_in_either_order(pair: tuple[str, str]) -> None:
    assert not _broken(pair)
    _assert_same(pair, pair[::-1])


def test_the_namespace_follows() -> None:
    """In names of objects, and inside of queries and names of certificates."""
    text = str(together(*OTHERS, MODELS[0], GPUS[0], SCALERS[1], namespace="team-a"))
    assert text.count('{namespace="team-a"') == 4
    assert "*.etcd.team-a.svc'" in text
    for left in ('namespace="baton"', ".baton.svc", "'namespace': 'baton'"):
        assert left not in text


def _broken(components: tuple[str, ...]) -> dict[str, list[str]]:
    rendered = Rendered(together(*components))
    excused = {rule for name in components for rule in EXCEPTIONS.get(name, {})}
    broken = {name: list(rule(rendered)) for name, rule in RULES.items() if name not in excused}
    return {name: found for name, found in broken.items() if found}


def _assert_same(components: tuple[str, ...], others: tuple[str, ...]) -> None:
    one, other = ({title(o): _unordered(o) for o in together(*c)} for c in (components, others))
    assert one.keys() == other.keys()
    assert not [name for name in one if one[name] != other[name]]


def _unordered(node: Any, field: str = "") -> Any:
    """Return a value with what has names in the order of these, where the order means nothing.

    Init containers run in theirs. A variable must come after those that it refers to, which is a
    rule's.
    """
    if isinstance(node, dict):
        return {key: _unordered(value, key) for key, value in node.items()}
    if isinstance(node, list):
        below: list[Object] = [_unordered(one) for one in node]
        if field != "initContainers" and all(isinstance(o, dict) and "name" in o for o in below):
            below.sort(key=lambda one: (one["name"], one.get("mountPath", "")))
        return below
    return node
