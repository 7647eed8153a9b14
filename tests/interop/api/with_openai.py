"""OpenAI's client, and the tests that its source distribution has of chat and completions.

python with_openai.py URL MODEL ENVIRONMENTS    knows nothing of this repository
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from cases import run
from openai import OpenAI

URL, MODEL, ENVIRONMENTS = sys.argv[1:]
VERSION = "3.54.0"
MODELS = ("gpt-6-astra", "gpt-3.5-turbo-instruct")
"""Names of models in the tests, which are replaced; nothing else is."""
SUITE = ("tests/api_resources/chat/test_completions.py", "tests/api_resources/test_completions.py")
STORED = ("retrieve", "update", "list", "delete")
"""Methods of stored completions, of which this cluster has none."""
REFUSED: dict[str, tuple[Any, str]] = {
    "store": (True, "stores nothing"),
    "verbosity": ("low", "ask for it in a message"),
    "web_search_options": ({"search_context_size": "low"}, "nothing is searched"),
    "moderation": ({"model": "model"}, "nothing is moderated"),
}
"""What is refused of the parameters that some tests of chat send, all at once: a value, and what
the refusal says."""
REFUSAL = re.compile(rf"(?P<param>{'|'.join(REFUSED)}) is not supported")
UNTYPED = ("isinstance(None, float)", "expected schema")
"""The first echoed token has no log probability: OpenAI's service says null, for which the client's
type has no room."""
QUESTION: Any = [{"role": "user", "content": "Hello"}]
client = OpenAI(base_url=URL, api_key="none", max_retries=0, timeout=120)


def openais_own_tests() -> str:
    return judged(reported(lambda text: text))


def openais_own_tests_of_all_parameters_that_are_served() -> str:
    """The same tests, of those that send every parameter, without those that are refused or that
    the client's types do not take the answer of."""
    counts: Counter[str] = Counter()
    wrong = []
    for case in reported(served).iter("testcase"):
        name = case.get("name", "")
        if "with_all_params" not in name or "create" not in name:
            continue
        problem = case.find("failure")
        counts["passed" if problem is None else "failed"] += 1
        if problem is not None:
            wrong.append(f"{name}: {(problem.get('message') or '')[:200]}")
    assert not wrong, "\n".join(wrong)
    left_out = ", ".join((*REFUSED, "echo"))
    return f"{counts['passed']} of {counts.total()} without {left_out}"


def served(text: str) -> str:
    """Return a file of tests whose calls have none of the parameters that are refused."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.keywords = [one for one in node.keywords if one.arg not in (*REFUSED, "echo")]
    return ast.unparse(tree)


def reported(change: Callable[[str], str]) -> ElementTree.Element:
    """Run OpenAI's tests, each file as `change` leaves it, and return pytest's report."""
    with tempfile.TemporaryDirectory() as temporary:
        (source,) = Path(ENVIRONMENTS).glob(f"openai-{VERSION}.tar.gz")
        shutil.unpack_archive(source, temporary)
        root = Path(temporary) / f"openai-{VERSION}"
        for name in SUITE:
            path = root / name
            text = path.read_text()
            for model in MODELS:
                text = text.replace(f'model="{model}"', f'model="{MODEL}"')
            path.write_text(change(text))
        report = root / "report.xml"
        command = (sys.executable, "-m", "pytest", "-q", "-o", "addopts=", *SUITE)
        ran = subprocess.run(
            (*command, f"--junitxml={report}"),
            cwd=root,
            env={**os.environ, "TEST_API_BASE_URL": URL},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert report.exists(), ran.stdout + ran.stderr
        return ElementTree.parse(report).getroot()


def judged(report: ElementTree.Element) -> str:
    """Return how many tests passed; raise if one fails that is not of what is refused."""
    counts: Counter[str] = Counter()
    wrong = []
    for case in report.iter("testcase"):
        name = case.get("name", "")
        problem = case.find("failure")
        if problem is None:
            problem = case.find("error")
        stored = re.search(rf"_({'|'.join(STORED)})(_|\[)", name) is not None
        every = "with_all_params" in name and "create" in name
        chat = ".chat." in case.get("classname", "")
        if problem is None:
            counts["passed"] += 1
        elif stored and any(code in (problem.text or "") for code in ("404", "405", "501")):
            counts["stored"] += 1
        elif every and chat and (found := REFUSAL.search(problem.text or "")):
            counts[f"refused: {found['param']}"] += 1
        elif every and not chat and any(one in (problem.text or "") for one in UNTYPED):
            counts["untyped"] += 1
        else:
            wrong.append(f"{name}: {(problem.get('message') or '')[:200]}")
    assert not wrong, "\n".join(wrong)
    of_stored = f"{counts['stored']} are of stored completions"
    by_name = {name: counts[f"refused: {name}"] for name in REFUSED}
    every = f"{sum(by_name.values())} send every parameter, of which the first that is refused is "
    every += ", ".join(f"{name} ({count})" for name, count in by_name.items() if count)
    untyped = f"{counts['untyped']} take no null before an echoed prompt's first token"
    return f"{counts['passed']} of {counts.total()}; {of_stored}; {every}; {untyped}"


def every_refusal_has_a_sentence() -> str:
    others = {
        "modalities": (["text", "audio"], "answers are text"),
        "temprature": (1, ""),
    }
    for name, (value, sentence) in (REFUSED | others).items():
        try:
            client.chat.completions.create(model=MODEL, messages=QUESTION, extra_body={name: value})
        except Exception as error:  # noqa: BLE001 - whatever the client makes of it
            assert getattr(error, "status_code", 0) == 400
            assert getattr(error, "param", "") == name
            assert sentence in str(error), error
        else:
            raise AssertionError(f"{name} was taken")
    return ", ".join(REFUSED | others)


def a_function_is_called() -> str:
    """As clients did before there were tools, whole and streamed."""
    clock: Any = {
        "name": "get_time",
        "parameters": {"type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}}},
    }
    asked: Any = {"functions": [clock], "function_call": {"name": "get_time"}, "temperature": 0}
    answer = client.chat.completions.create(model=MODEL, messages=QUESTION, **asked)
    (choice,) = answer.choices
    call = choice.message.function_call
    assert call is not None
    assert choice.finish_reason == "function_call"
    assert choice.message.tool_calls is None
    streamed: list[str] = []
    for chunk in client.chat.completions.create(
        model=MODEL, messages=QUESTION, stream=True, **asked
    ):
        if (delta := chunk.choices[0].delta.function_call) is not None:
            streamed.append(delta.arguments or "")
    assert "".join(streamed) == call.arguments
    history: Any = [*QUESTION, choice.message, {"role": "function", "name": call.name}]
    history[-1]["content"] = "12:00"
    client.chat.completions.create(model=MODEL, messages=history, max_tokens=4, functions=[clock])
    return f"{call.name}({call.arguments})"


def thinking_can_be_switched_off() -> str:
    """As Qwen's documentation says it, on a template with Qwen3's switch."""
    lengths = {}
    for extra in ({}, {"chat_template_kwargs": {"enable_thinking": False}}):
        answer = client.chat.completions.create(
            model=MODEL, messages=QUESTION, max_tokens=5, extra_body=extra
        )
        assert answer.usage is not None
        lengths[bool(extra)] = answer.usage.prompt_tokens
    effort = client.chat.completions.create(
        model=MODEL, messages=QUESTION, max_tokens=5, reasoning_effort="none"
    )
    assert effort.usage is not None
    assert effort.usage.prompt_tokens == lengths[True] > lengths[False]
    return f"{lengths[True]} tokens of prompt, {lengths[False]} without"


def what_is_recommended_is_shown() -> str:
    (model,) = client.models.list().data
    defaults = (model.model_extra or {})["sampling_defaults"]
    assert defaults == {"temperature": 0.75, "top_k": 20}, defaults
    return repr(defaults)


def a_message_is_gone_on_with() -> str:
    begun = "Once upon a"
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[*QUESTION, {"role": "assistant", "content": begun}],
        temperature=0,
        max_tokens=8,
        extra_body={
            "add_generation_prompt": False,
            "continue_final_message": True,
            "echo": True,
            "include_stop_str_in_output": True,
        },
        stop=["."],
    )
    said = answer.choices[0].message.content or ""
    assert said.startswith(begun)
    assert len(said) > len(begun)
    return repr(said)


def a_gap_is_filled() -> str:
    """With tokens that Baton Tiny was not trained with: what is shown is the prompt."""
    texts = {}
    for suffix in (None, " the end."):
        answer = client.completions.create(
            model=MODEL,
            prompt="Once",
            suffix=suffix,
            max_tokens=1,
            extra_body={"return_token_ids": True},
        )
        ids = (answer.choices[0].model_extra or {})["prompt_token_ids"]
        texts[suffix] = client.post("/detokenize", body={"tokens": ids}, cast_to=dict[str, str])[
            "prompt"
        ]
    assert texts[None] == "Once", texts
    assert texts[" the end."] == "<|fim_prefix|>Once<|fim_suffix|> the end.<|fim_middle|>", texts
    return texts[" the end."]


def usage_comes_with_every_chunk() -> str:
    options: Any = {"include_usage": True, "continuous_usage_stats": True}
    counts = [
        chunk.usage.completion_tokens
        for chunk in client.chat.completions.create(
            model=MODEL, messages=QUESTION, max_tokens=6, stream=True, stream_options=options
        )
        if chunk.usage is not None
    ]
    assert counts == sorted(counts)
    assert len(counts) > 3
    return repr(counts)


if __name__ == "__main__":
    sys.exit(
        run(
            openais_own_tests,
            openais_own_tests_of_all_parameters_that_are_served,
            a_function_is_called,
            every_refusal_has_a_sentence,
            thinking_can_be_switched_off,
            what_is_recommended_is_shown,
            a_message_is_gone_on_with,
            a_gap_is_filled,
            usage_comes_with_every_chunk,
        )
    )
