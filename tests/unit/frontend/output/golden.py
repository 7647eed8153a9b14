"""Write the golden transcripts: what transformers renders of conversations with each template.

python -m tests.unit.frontend.output.golden    writes transcripts.json beside this file

The templates are in the public forms of their families, written for these tests: what stands around
calls is as the models' own templates have it, the sentences are not.
"""

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather somewhere",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer"},
                    "options": {"type": "object"},
                },
                "required": ["city"],
            },
        },
    },
    {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}},
]
QUESTION = {"role": "user", "content": "Which tool is it?"}
QUOTED = {
    "hermes": 'Write `<tool_call>` and \'<tool_call>{"name": "get_time"}\' yourself.',
    "qwen3_coder": "Write `<tool_call>` and `<function=get_time>` yourself.",
    "llama3": 'Write {"name": "get_time", "parameters": {}} yourself.',
    "mistral": "Write TOOL_CALLS in brackets yourself.",
    "mistral_args": "Write TOOL_CALLS in brackets yourself.",
}


def call(name: str, arguments: dict[str, Any], index: int = 0) -> dict[str, Any]:
    """Return a call as chat templates take it."""
    function = {"name": name, "arguments": arguments}
    return {"id": f"abcdefgh{index}", "type": "function", "function": function}


HARD = {"city": 'The "big" {one} \\ a\nb </tool_call>', "options": {"q": ['"', "]}", {"x": None}]}}
ANSWERS: dict[str, dict[str, Any]] = {
    "no arguments": {"tool_calls": [call("get_time", {})]},
    "unicode": {"tool_calls": [call("get_weather", {"city": "Tōkyō 東京 🗼", "days": 3})]},
    "nested quotes": {"tool_calls": [call("get_weather", HARD)]},
    "text around": {
        "content": "I will look: 5 < 6.",
        "tool_calls": [call("get_weather", {"city": "Rome"})],
    },
    "two calls": {
        "tool_calls": [call("get_weather", {"city": "Rome"}), call("get_time", {}, 1)],
    },
    "reasoning": {
        "reasoning_content": "Rome is far.\n\nLook.",
        "content": "So:",
        "tool_calls": [call("get_weather", {"city": "Rome"})],
    },
    "no call": {"content": "Nothing to do."},
}
UNKNOWN = {
    ("llama3", "two calls"),
    ("llama3", "text around"),
    ("mistral", "text around"),
    *((name, "reasoning") for name in QUOTED if name != "hermes"),
}
"""What the form of a family has no way to say."""


def main() -> None:
    from transformers import PreTrainedTokenizerFast

    from tests.unit.frontend.conftest import byte_level

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=byte_level(), bos_token="<s>", eos_token="</s>"
    )
    transcripts = []
    for path in sorted((HERE / "templates").glob("*.jinja")):
        tokenizer.chat_template = path.read_text()
        answers = {**ANSWERS, "quoted": {"content": QUOTED[path.stem]}}
        for case, answer in answers.items():
            if (path.stem, case) in UNKNOWN:
                continue
            message = {"role": "assistant", "content": "", **answer}
            before = tokenizer.apply_chat_template(
                [QUESTION], tools=TOOLS, tokenize=False, add_generation_prompt=True
            )
            whole = tokenizer.apply_chat_template([QUESTION, message], tools=TOOLS, tokenize=False)
            if not whole.startswith(before):  # it writes tools into the last message
                before = tokenizer.apply_chat_template([QUESTION], tokenize=False)
                whole = tokenizer.apply_chat_template([QUESTION, message], tokenize=False)
            text = whole.removeprefix(before)
            for end in ("<|im_end|>\n", "<|eot_id|>", "</s>"):
                text = text.removesuffix(end)
            transcripts.append(
                {"template": path.stem, "case": case, "prompt": before, "text": text, **message}
            )
    data = json.dumps(transcripts, indent=1, ensure_ascii=False) + "\n"
    (HERE / "transcripts.json").write_text(data)


if __name__ == "__main__":
    main()
