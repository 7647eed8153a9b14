"""The frontend's limits are settings: what is asked beyond them is refused by name."""

from collections.abc import Callable

import msgspec
import pytest

from baton.errors import BatonError, Reason
from baton.settings import FrontendLimits
from baton.tenancy.directory.principal import LOCAL
from services.frontend.openai.request.decode import read_completion
from services.frontend.openai.request.parse import RequestNames, completion_requests
from services.frontend.requests.request import ChatPrompt, GenerationRequest, TextPrompt
from services.frontend.requests.validation import validate
from services.frontend.text.chat_template import ChatMessage

LIMITS = FrontendLimits(max_messages=2, max_choices=3, max_outputs=4)


def converse(messages: int) -> None:
    prompt = ChatPrompt([ChatMessage("user", "Hello")] * messages)
    validate.check(GenerationRequest("m", prompt), LIMITS, LOCAL)


def choose(n: int) -> None:
    validate.check(GenerationRequest("m", TextPrompt("Hello"), n=n), LIMITS, LOCAL)


def complete(prompts: int) -> None:
    body = {"model": "m", "prompt": ["Hello"] * prompts, "n": 2}
    completion_requests(
        read_completion(msgspec.json.encode(body)), RequestNames("id"), LIMITS.max_outputs
    )


@pytest.mark.parametrize(
    ("ask", "most", "field"),
    [(converse, 2, "messages"), (choose, 3, "n"), (complete, 2, "prompt")],
)
def test_one_more_than_the_limit_is_refused(
    ask: Callable[[int], None], most: int, field: str
) -> None:
    ask(most)
    with pytest.raises(BatonError) as refused:
        ask(most + 1)
    assert (refused.value.reason, refused.value.field) == (Reason.INVALID_FIELD, field)
