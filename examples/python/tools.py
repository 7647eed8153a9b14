"""Call tools over HTTP with OpenAI's client: run each call, return its result, print the answer.

OPENAI_API_KEY is the key, for a frontend that requires one.
"""

import argparse
import json
import os
import sys
from typing import Any

from openai import OpenAI, OpenAIError

API_KEY = os.environ.get("OPENAI_API_KEY", "none")
ROUNDS = 4
STOCK = {"apples": 12, "pears": 5, "plums": 7}


def count_fruit(kind: str) -> str:
    return f"There are {STOCK[kind]} {kind}."


FUNCTIONS = {"count_fruit": count_fruit}
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "count_fruit",
            "description": "Counts the fruit in stock.",
            "parameters": {
                "type": "object",
                "properties": {"kind": {"enum": list(STOCK)}},
                "required": ["kind"],
                "additionalProperties": False,
            },
            "strict": True,  # the arguments conform to the schema
        },
    }
]


def ask(client: OpenAI, model: str, question: str) -> str:
    messages: list[Any] = [{"role": "user", "content": question}]
    for number in range(ROUNDS):
        completion = client.chat.completions.create(
            model=model,
            messages=messages,
            tools=TOOLS,
            # Baton Tiny never calls a tool by itself. Models that do need only "auto".
            tool_choice="required" if number == 0 else "auto",
            parallel_tool_calls=False,
            temperature=0,
            max_tokens=256,
        )
        message = completion.choices[0].message
        if not message.tool_calls:
            return message.content or ""
        messages.append(message)
        for call in message.tool_calls:
            assert call.type == "function"
            arguments = json.loads(call.function.arguments)
            result = FUNCTIONS[call.function.name](**arguments)
            print(f"{call.function.name}({arguments}) -> {result}")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    raise RuntimeError(f"no answer after {ROUNDS} rounds of calls")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    default = "http://127.0.0.1:8000/v1"
    parser.add_argument("base_url", nargs="?", default=default, help="default: %(default)s")
    base_url = parser.parse_args().base_url

    with OpenAI(base_url=base_url, api_key=API_KEY) as client:
        model = client.models.list().data[0].id
        print(ask(client, model, "How many pears are there?"))


if __name__ == "__main__":
    try:
        main()
    except OpenAIError as error:
        sys.exit(f"error: {error}")
