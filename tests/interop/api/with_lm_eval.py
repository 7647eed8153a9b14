"""lm-evaluation-harness: its requests of loglikelihoods and of generated text.

python with_lm_eval.py URL MODEL ENVIRONMENTS    knows nothing of this repository
"""

import logging
import sys
from functools import cache
from typing import Any

import requests
from cases import run
from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI

URL, MODEL, _ = sys.argv[1:]
CONTEXT = "There was a young fox"
logging.disable(logging.WARNING)


@cache
def harness() -> LocalCompletionsAPI:
    """Return the harness's client, which asks the server for its tokenizer."""
    made = LocalCompletionsAPI(base_url=f"{URL}/completions", model=MODEL, batch_size=4)
    assert made.tokenizer_backend == "remote"
    return made


def completion(**asked: Any) -> Any:
    answer = requests.post(f"{URL}/completions", json={"model": MODEL, **asked}, timeout=60)
    answer.raise_for_status()
    return answer.json()["choices"][0]


def loglikelihoods_are_those_of_the_decoded_tokens() -> str:
    # What the model says itself, with the log probabilities that its decode steps reported.
    said = completion(prompt=CONTEXT, max_tokens=6, temperature=0, logprobs=0)
    expected = sum(said["logprobs"]["token_logprobs"])
    found, other = harness().loglikelihood(
        [
            Instance("loglikelihood", {}, (CONTEXT, said["text"]), 0),
            Instance("loglikelihood", {}, (CONTEXT, " seventeen kettles"), 1),
        ]
    )
    assert abs(found[0] - expected) < 0.05, (found, expected)
    assert found[1] is True
    assert other[1] is False
    assert other[0] < found[0]
    # The second time the whole prompt is cached, and computed all the same.
    again = harness().loglikelihood([Instance("loglikelihood", {}, (CONTEXT, said["text"]), 0)])
    assert abs(again[0][0] - found[0]) < 0.01
    return f"{found[0]:.3f} and {expected:.3f}; another text {other[0]:.3f}"


def text_until_a_stop() -> str:
    asked = {"until": [" fox"], "max_gen_toks": 24}
    (text,) = harness().generate_until([Instance("generate_until", {}, ("There was a", asked), 0)])
    whole = completion(prompt="There was a", max_tokens=24, temperature=0)["text"]
    assert text
    assert whole.split(" fox")[0] == text
    return repr(text)


if __name__ == "__main__":
    sys.exit(run(loglikelihoods_are_those_of_the_decoded_tokens, text_until_a_stop))
