import math
import sys

import pytest
import torch

from bench.gpu.__main__ import NO_GPU, main
from bench.gpu.check import MOST_OFF, problems_of
from bench.gpu.family import Result, differing, judge


def test_without_a_gpu_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["bench.gpu", "llama"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert capsys.readouterr() == ("", f"{NO_GPU}\n")


def test_the_references_output_is_scored_as_a_whole() -> None:
    expected = {"tokens": [1, 2, 4], "logprobs": [-0.5, -1.0, -1.0], "gaps": [3.0, 2.0, 0.01]}
    result = Result()
    judge(result, [[1, 2, 3]], [[-0.5, -1.25, -1.5]], [expected])
    assert (result.tokens, result.different, result.gap) == (3, 1, 0.01)
    assert (result.mean_off, result.most_off) == (0.25, 0.5)


def test_an_output_differs_from_its_first_different_token_on() -> None:
    assert differing([[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 7, 6]]) == 2


@pytest.mark.parametrize("off", [MOST_OFF * 2, math.nan])
def test_other_logprobs_are_a_problem(off: float) -> None:
    (problem,) = problems_of("llama", Result(reference="vllm", mean_off=off))
    assert "off those of vllm" in problem


def test_only_a_deterministic_engine_keeps_each_token() -> None:
    ways = {"again": 0, "moved": 3}
    assert not problems_of("llama", Result(ways=ways))
    (problem,) = problems_of("llama", Result(ways=ways, deterministic=True))
    assert "{'moved': 3}" in problem
