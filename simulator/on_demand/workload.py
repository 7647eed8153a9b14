"""Requests for several models, some of which are asked for more often."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request for one of the models."""

    arrival: float
    """Seconds."""
    model: int
    prompt_tokens: int
    output_tokens: int


def zipf_requests(
    models: int, per_second: float, seconds: float, output_tokens: int, seed: int
) -> list[ModelRequest]:
    """Return requests at random times, for the k-th model as often as 1 / k.

    Args:
        models: number of models.
        per_second: of all models.
        seconds: time of the arrivals.
        output_tokens: mean of the outputs, which are exponentially distributed.
        seed: of all random numbers.
    """
    draw = random.Random(seed)
    weights = [1 / (number + 1) for number in range(models)]
    requests = []
    now = draw.expovariate(per_second)
    while now < seconds:
        model = draw.choices(range(models), weights)[0]
        output = 1 + round(draw.expovariate(1 / output_tokens))
        requests.append(ModelRequest(now, model, draw.randint(100, 1_000), output))
        now += draw.expovariate(per_second)
    return requests
