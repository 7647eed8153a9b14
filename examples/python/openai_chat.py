"""Chat over HTTP with OpenAI's client: stream an answer, then ask for JSON that follows a schema.

OPENAI_API_KEY is the key, for a frontend that requires one.
"""

import argparse
import json
import os
import sys

from openai import OpenAI, OpenAIError

API_KEY = os.environ.get("OPENAI_API_KEY", "none")
ANIMAL = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z][a-z]{2,9}$"},
        "kind": {"enum": ["fox", "owl", "whale"]},
        "age": {"type": "integer", "minimum": 1, "maximum": 20},
    },
    "required": ["name", "kind", "age"],
    "additionalProperties": False,
}


def stream_answer(client: OpenAI, model: str) -> None:
    stream = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "Tell me a story about a fox"}],
        max_tokens=256,
        stream=True,
        stream_options={"include_usage": True},
    )
    for chunk in stream:
        if chunk.choices:
            print(chunk.choices[0].delta.content or "", end="", flush=True)
        elif chunk.usage:  # the last chunk, which has no choices
            print(f"\n({chunk.usage.prompt_tokens} + {chunk.usage.completion_tokens} tokens)")


def structured_answer(client: OpenAI, model: str) -> None:
    completion = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "Describe an animal."}],
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "animal", "schema": ANIMAL, "strict": True},
        },
        max_tokens=128,
    )
    if completion.choices[0].finish_reason == "length":
        sys.exit("max_tokens cut the JSON off")
    animal = json.loads(completion.choices[0].message.content or "")
    print(f"{animal['name']}, a {animal['kind']}, is {animal['age']} years old")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    default = "http://127.0.0.1:8000/v1"
    parser.add_argument("base_url", nargs="?", default=default, help="default: %(default)s")
    base_url = parser.parse_args().base_url

    with OpenAI(base_url=base_url, api_key=API_KEY) as client:
        model = client.models.list().data[0].id
        stream_answer(client, model)
        structured_answer(client, model)


if __name__ == "__main__":
    try:
        main()
    except OpenAIError as error:
        sys.exit(f"error: {error}")
