"""Whether a text has source code in it. Pure."""

import re

_LITERALS = ("```", "Traceback (most recent call last)", "#include", "</", "();", "=> {", "#!/")
"""What prose does not have."""
_LINE = re.compile(
    r"""^[ \t]*(?:
        (?:async\ )?def\ \w+\(.*\).*:
      | class\ \w+(?:\(.*\))?\ ?[:{]
      | from\ [\w.]+\ import\ \w
      | import\ [\w.{}*, ]+;?$
      | (?:func|fn|function)\ \w*[(<\[]
      | (?:public|private|protected|static|final)\ .*[({;]$
      | (?:const|let|var|auto|val)\ (?:mut\ )?\w+(?::\ ?\w+)?\ =\ \S
      | (?:if|for|while|switch|catch)\ ?\(.*\)
      | (?:if|for|while|elif|except|with)\ .*[=<>(\[.].*:$
      | (?:return|throw|raise|yield|await)\ .*[;)\]]$
      | (?:SELECT|UPDATE|DELETE)\ .*\b(?:FROM|SET|WHERE)\b
      | (?:select|update|delete)\ .*\b(?:from|set|where)\ .*[;=]
      | (?:INSERT\ INTO|CREATE\ TABLE|ALTER\ TABLE)\ \w
      | [\w.\[\]]+\ (?::=|\+=|=)\ \S.*
      | at\ [\w.$<>]+\(.*\)$
      | \$\ \w+
    )""",
    re.VERBOSE,
)
"""A line of a program, a query, a stack trace or a shell."""
_FIRST = re.compile(r"[ \t]*([A-Za-z]+)")
_BEGINNINGS = frozenset(
    (
        *("async", "def", "class", "from", "import", "func", "fn", "function", "public", "private"),
        *("protected", "static", "final", "const", "let", "var", "auto", "val", "if", "for"),
        *("while", "switch", "catch", "elif", "except", "with", "return", "throw", "raise"),
        *("yield", "await", "SELECT", "UPDATE", "DELETE", "select", "update", "delete"),
        *("INSERT", "CREATE", "ALTER", "at"),
    )
)
"""First words of `_LINE`."""
_ENDS = (";", "{", "}", "};", ");", "],", "),")
_MAX_LINES = 24
"""Of a text that are read: the first and the last."""
_LINES = 2
"""Lines that end as those of programs do, which make a text one with code."""


def has_code(text: str) -> bool:
    """Return whether a text has source code in it, of whatever language."""
    if any(literal in text for literal in _LITERALS):
        return True
    lines = text.split("\n")
    if len(lines) > _MAX_LINES:
        lines = lines[: _MAX_LINES // 2] + lines[-_MAX_LINES // 2 :]
    if sum(line.rstrip().endswith(_ENDS) for line in lines) >= _LINES:
        return True
    return any(_LINE.match(line) for line in lines if _may_be_code(line))


def _may_be_code(line: str) -> bool:
    """Return whether a line is worth a match with `_LINE`, which takes several times as long."""
    first = _FIRST.match(line)
    return (first is not None and first[1] in _BEGINNINGS) or "=" in line or "$ " in line
