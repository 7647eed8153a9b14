"""Cost of parsing outputs: `python -m bench.serving.answers`.

Parses prose, and the arguments of a tool call, token by token, as a frontend does for a request
with tools, and the same prose for a request without. Prints microseconds per token of the output's
code, and the lexer's part of it.
"""

import time
from dataclasses import dataclass

import tokenizers

from baton.internal.v1 import cluster_pb2
from baton.v1 import common_pb2
from baton.worker.wire.tokenizer_files import TokenizerFiles
from bench.harness.checkpoints import tokenizer_only
from bench.harness.table import Table
from services.frontend.generation.state.output import ChoiceOutput
from services.frontend.models.model import ServedModel
from services.frontend.output.definitions import ToolDefinition, ToolUse
from services.frontend.output.formats import FAMILIES, AnswerReader, answer_format
from services.frontend.requests.request import ResolvedRequest
from services.frontend.text.tokenizer import Tokenizer

ROUNDS = 7
TOKENS = 4000
PROSE = (
    "The fox went to the river, and it was very quiet there: nobody had come. Then 3 < 5 rains.\n"
)
PARAMETERS = {"type": "object", "properties": {"text": {"type": "string"}}}
USE = ToolUse((ToolDefinition("write", {}, PARAMETERS),))
CALLS = {
    "hermes": '<tool_call>\n{"name": "write", "arguments": {"text": "',
    "qwen3_coder": "<tool_call>\n<function=write>\n<parameter=text>\n",
    "llama3": '{"name": "write", "parameters": {"text": "',
    "mistral": '[TOOL_CALLS][{"name": "write", "arguments": {"text": "',
    "mistral_args": '[TOOL_CALLS]write[ARGS]{"text": "',
}


@dataclass(frozen=True)
class Reading:
    """A text and the family that parses it, if any."""

    request: ResolvedRequest
    before: list[int]
    tokens: list[int]

    def seconds(self) -> float:
        """Return the seconds of its tokens, one by one."""
        output = ChoiceOutput(self.request, 0)
        output.push(self.before)
        begun = time.perf_counter()
        for token in self.tokens:
            output.push((token,))
        return time.perf_counter() - begun


def reading(tokenizer: Tokenizer, before: str, reader: AnswerReader | None) -> Reading:
    """Return the parsing of prose after some text."""
    card = cluster_pb2.ModelCard(name="m", context_tokens=1 << 20, vocab_tokens=1 << 20)
    request = ResolvedRequest(
        context=common_pb2.RequestContext(request_id="r", model="m"),
        model=ServedModel("m", tokenizer, (card,)),
        prompt=[0],
        sampling=common_pb2.SamplingParams(seed=1, max_tokens=1 << 20),
        stop=(),
        n=1,
        reader=reader,
    )
    one = tokenizer.encode(PROSE)
    tokens = (one * (TOKENS // len(one) + 1))[:TOKENS]
    return Reading(request, tokenizer.encode(before), tokens)


def main() -> None:
    files = TokenizerFiles.read(tokenizer_only("answers"))
    backend = tokenizers.Tokenizer.from_str(files.tokenizer.decode())
    plain = Tokenizer.load(files)
    backend.add_special_tokens(["[TOOL_CALLS]", "[ARGS]", "<|python_tag|>"])
    marked = Tokenizer.load(
        TokenizerFiles(backend.to_str().encode(), files.config, files.chat_template)
    )
    cases = {("no tools", "prose"): reading(plain, "", None)}
    for name in FAMILIES:
        tokenizer = marked if name in ("mistral", "mistral_args", "llama3") else plain
        reader = answer_format(tokenizer, name, "none").reader(USE, tokenizer, [0], 1, "r")
        cases[name, "prose"] = reading(tokenizer, "", reader)
        cases[name, "a call"] = reading(tokenizer, CALLS[name], reader)
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(ROUNDS):
        for case, made in cases.items():
            best[case] = min(best[case], made.seconds() / TOKENS * 1e6)
    none = best["no tools", "prose"]
    table = Table(
        ("family", "<14"), ("reads", "<8"), ("µs/token", "8.2f"), ("of these the lexer", "18.2f")
    )
    for (family, what), micros in best.items():
        table.row(family, what, micros, micros - none)


if __name__ == "__main__":
    main()
