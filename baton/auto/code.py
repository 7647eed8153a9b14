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
    re.MULTILINE | re.VERBOSE,
)
"""A line of a program, a query, a stack trace or a shell."""
_ENDS = (";", "{", "}", "};", ");", "],", "),")
_LINES = 2
"""Lines that end as those of programs do, which make a text one with code."""


def has_code(text: str) -> bool:
    """Return whether a text has source code in it, of whatever language."""
    if any(literal in text for literal in _LITERALS):
        return True
    lines = text.split("\n")
    if sum(line.rstrip().endswith(_ENDS) for line in lines) >= _LINES:
        return True
    return _LINE.search(text) is not None
