"""The rule for a custom tool's input within the grammar of an answer."""

import re

from baton.request.grammar import Grammar
from services.frontend.output.custom.function import INPUT
from services.frontend.output.custom.json_lark import json_lark
from services.frontend.output.custom.json_regex import json_regex
from services.frontend.output.families.qwen3_coder import PARAMETER, VALUE_END

_REGEX = "regex"
_OPEN, _CLOSE = f'"{PARAMETER}{INPUT}>\\n"', f'"\\n{VALUE_END}\\n"'
_END = VALUE_END.replace("/", "\\/")


def input_rule(form: Grammar, name: str, rules: list[str], *, xml: bool) -> str:
    """Return a rule for the arguments of a call whose input matches a grammar.

    Args:
        form: of the input; it compiles.
        name: of the rule, and a prefix of the names of others.
        rules: receives them.
        xml: whether arguments are parameters in XML, not JSON.

    Raises:
        ValueError: the grammar cannot be enforced there; the text says why.
    """
    if xml and form.kind == _REGEX:
        rules.append(f"{name}_text[lazy]: /(?:{_slashed(form.text)})\\n{_END}\\n/")
        rules.append(f"{name}: {_OPEN} {name}_text")
    elif xml:
        rules.append(f"{name}: {_OPEN} %lark {{\n{form.text}\n}} {_CLOSE}")
    else:
        if form.kind == _REGEX:
            first = f"/{json_regex(form.text)}/"
        else:
            first, more = json_lark(form.text, name)
            rules += more
        rules.append(f'{name}: /\\{{"{INPUT}": ?"/ {first} "\\"}}"')
    return name


def _slashed(pattern: str) -> str:
    return re.sub(r"(?<!\\)((?:\\\\)*)/", r"\1\\/", pattern)
