"""Sampling and stopping parameters: the single definition that is shared by frontends, workers,
engines and the client.
"""

from baton.sampling.parameter import Effect, Engines, InvalidParameterError, Limits, Parameter
from baton.sampling.params import PARAMETERS, SamplingOptions, SamplingParams
from baton.sampling.validation import (
    check,
    check_token_ids,
    check_vocabulary,
    features_of,
    is_plainly_greedy,
    needed_features,
)

__all__ = [
    "PARAMETERS",
    "Effect",
    "Engines",
    "InvalidParameterError",
    "Limits",
    "Parameter",
    "SamplingOptions",
    "SamplingParams",
    "check",
    "check_token_ids",
    "check_vocabulary",
    "features_of",
    "is_plainly_greedy",
    "needed_features",
]
