"""A labelled prompt: a request, the model that it needs, and the length of an answer."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

SMALL, LARGE = "small", "large"


@dataclass(frozen=True)
class LabelledPrompt:
    """A request as a body of /v1/chat/completions has it, except `model`."""

    kind: str
    """The kind of task, which decides the label."""
    label: str
    """The cheapest model that is meant to suffice: SMALL or LARGE."""
    output_tokens: int
    """Assumed, for the cost."""
    messages: list[dict[str, Any]]
    fields: dict[str, Any] = field(default_factory=dict)
    """Tools, response format and so on."""


@dataclass(frozen=True)
class TaskKind:
    """A kind of task in a generator."""

    name: str
    label: str
    weight: int
    """Its share of the prompts is this over the sum of all."""
    output_tokens: tuple[int, int]
    write: Callable[[random.Random], "Task"]


@dataclass(frozen=True)
class Task:
    """What a user asks for."""

    text: str
    earlier: Sequence[tuple[str, str]] = ()
    """Earlier turns of the user and the assistant."""
    fields: dict[str, Any] = field(default_factory=dict)


def draw(
    kinds: Sequence[TaskKind], systems: Sequence[str], count: int, seed: int
) -> list[LabelledPrompt]:
    """Return prompts of these kinds by their weights, each with one of the system prompts."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        (kind,) = rng.choices(kinds, [one.weight for one in kinds])
        task = kind.write(rng)
        messages = [{"role": "system", "content": rng.choice(systems)}]
        for user, assistant in task.earlier:
            messages += [
                {"role": "user", "content": user},
                {"role": "assistant", "content": assistant},
            ]
        messages.append({"role": "user", "content": task.text})
        tokens = rng.randint(*kind.output_tokens)
        found.append(LabelledPrompt(kind.name, kind.label, tokens, messages, task.fields))
    return found


def tool(name: str, about: str, *arguments: str) -> dict[str, Any]:
    """Return a tool whose arguments are strings."""
    properties = {one: {"type": "string"} for one in arguments}
    function = {
        "name": name,
        "description": about,
        "parameters": {"type": "object", "properties": properties, "required": list(arguments)},
    }
    return {"type": "function", "function": function}


def schema(**properties: Any) -> dict[str, Any]:
    """Return a response format of one flat object."""
    body = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": body}}
