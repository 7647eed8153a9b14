"""An engine says why tokens may depend on the batch, and what to do about it."""

from typing import Any

import pytest

from baton.engine.base import Operators
from baton.engine.torch.kernels import PlainKernels
from baton.engine.torch.operators import why_inexact
from baton.settings import EngineSettings

COMPILED = Operators(variant="x86-64-v4-amx")
AMX = "this CPU has AMX"
REQUIRED = "BATON_ENGINE_DETERMINISTIC=required makes them the same"


class Deterministic(PlainKernels):
    deterministic = True


@pytest.mark.parametrize(
    ("setting", "operators", "dtype", "said"),
    [
        ({}, COMPILED, "bfloat16", (AMX, REQUIRED, "BATON_ENGINE_DTYPE=float32")),
        ({"deterministic": "off"}, COMPILED, "bfloat16", ("DETERMINISTIC is off", REQUIRED)),
        ({"device": "cuda"}, Operators(), "bfloat16", (REQUIRED,)),
        ({}, Operators(reason="no compiler"), "bfloat16", ("no compiled operators: no compiler",)),
        ({}, COMPILED, "float32", ("float32", "very seldom")),
        ({}, COMPILED, "float64", ()),
    ],
)
def test_the_reason_is_what_an_operator_can_change(
    setting: dict[str, Any], operators: Operators, dtype: str, said: tuple[str, ...]
) -> None:
    reason = why_inexact(EngineSettings(**setting), PlainKernels(), operators, dtype)
    assert bool(reason) == bool(said)
    for part in said:
        assert part in reason
    assert why_inexact(EngineSettings(**setting), Deterministic(), operators, dtype) == ""
