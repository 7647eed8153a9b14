"""The stream of an upstream with OpenAI's API."""

import json

from baton.request.stream_events import FinishReason
from services.frontend.providers.openai.stream import OpenAiStream
from tests.support.doubles.upstream import delta, finish


def test_each_choice_ends_once() -> None:
    stream, ends = OpenAiStream(2, "r"), []
    for event in (
        delta("a"),
        finish("length"),
        delta("b", choice=1),
        finish("stop", choice=1),
        finish("stop"),
    ):
        outputs = stream.read(json.dumps(event).encode())
        ends += [(one.choice, one.reason) for one in outputs if one.reason is not None]
    assert ends == [(0, FinishReason.LENGTH), (1, FinishReason.STOP)]
    assert stream.complete
