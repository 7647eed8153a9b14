"""Call tools and ask for forms with langchain and instructor, unmodified; a line per case.

python frameworks.py URL MODEL    knows nothing of this repository: it runs in a venv of its own
"""

import sys
from typing import Any

import instructor
from instructor.core import IncompleteOutputException
from langchain_openai import ChatOpenAI
from openai import OpenAI
from pydantic import BaseModel, ConfigDict

from models import Clock, Weather, run

URL, MODEL = sys.argv[1:]
QUESTION: Any = [{"role": "user", "content": "What is the weather in Rome?"}]
KINDS: dict[str, type[BaseModel]] = {"Weather": Weather, "Clock": Clock}
client = OpenAI(base_url=URL, api_key="none", max_retries=0, timeout=120)


def langchain_bind_tools() -> str:
    model: Any = ChatOpenAI(base_url=URL, api_key="none", model=MODEL, max_tokens=300)  # type: ignore[arg-type]
    bound = model.bind_tools([Weather, Clock], tool_choice="required", parallel_tool_calls=False)
    answer = bound.invoke("What is the weather in Rome?")
    (call,) = answer.tool_calls
    KINDS[call["name"]].model_validate(call["args"])
    whole = None
    for chunk in bound.stream("What is the weather in Rome?"):
        whole = chunk if whole is None else whole + chunk
    (streamed,) = whole.tool_calls
    KINDS[streamed["name"]].model_validate(streamed["args"])
    return f"{call['name']} {call['args']}; streamed {streamed['name']}"


def langchain_structured() -> str:
    model: Any = ChatOpenAI(base_url=URL, api_key="none", model=MODEL, max_tokens=300)  # type: ignore[arg-type]
    found = [
        model.with_structured_output(Weather, method=method).invoke("The weather in Rome")
        for method in ("json_schema", "function_calling")
    ]
    assert all(isinstance(one, Weather) for one in found)
    return repr(found[0])


def instructor_tools() -> str:
    patched = instructor.from_openai(client, mode=instructor.Mode.TOOLS)
    found = patched.chat.completions.create(
        model=MODEL, messages=QUESTION, response_model=Weather, max_tokens=300, max_retries=0
    )
    assert isinstance(found, Weather)
    return repr(found)


class Anything(BaseModel):
    """Any object: in JSON mode the model alone knows what is asked, and a small one does not."""

    model_config = ConfigDict(extra="allow")


def instructor_json() -> str:
    patched = instructor.from_openai(client, mode=instructor.Mode.JSON)
    for seed in range(20):
        try:
            found = patched.chat.completions.create(
                model=MODEL,
                messages=QUESTION,
                response_model=Anything,
                max_tokens=600,
                max_retries=0,
                temperature=1,
                seed=seed,
            )
        except IncompleteOutputException:  # the one way to JSON that is not whole
            continue
        assert isinstance(found, Anything)
        return repr(found)[:60]
    raise AssertionError("no answer of 20 ended by itself")


if __name__ == "__main__":
    sys.exit(run(langchain_bind_tools, langchain_structured, instructor_tools, instructor_json))
