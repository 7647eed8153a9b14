"""Limits on a grammar's cost, chosen so that compiling it and computing a mask take milliseconds.

Measured with llguidance 1.7.6: a grammar within these limits compiles within 250 ms on one core. A
more expensive one is detected in a step, where it runs out of fuel.
"""

from llguidance import LLParserLimits

MAX_DEPTH = 100
"""Maximum levels of a JSON Schema's text: the parser ends at 128."""
MAX_PROPERTIES = 1_000
"""Maximum properties of all objects of a schema together."""
MAX_OPTIONAL_PROPERTIES = 400
"""Maximum optional properties of one object: any of them may come next."""
MAX_ITEMS = 10_000
"""Maximum sum of all array bounds of a schema, `minItems` and `maxItems`."""
MAX_REPEATS = 10_000
"""Maximum bound of a repetition in a regular expression or in Lark."""
MAX_INTERSECTED = 4
"""Maximum patterns and formats that one string must match together."""
MAX_ALTERNATIVES = 1_500
"""Maximum alternatives of `anyOf` and `oneOf` of a schema together."""
MAX_LARK_ALTERNATIVES = 1_500
"""Maximum number of bars in a Lark grammar."""

BLAME_SECONDS = 0.05
"""CPU seconds for finding the part of a schema that caused an error."""
COMPILE_CPU_SECONDS = 2.0
"""CPU seconds of a compilation after which waiting callers are told that it is too complex."""
COMPILE_SECONDS = 20.0
"""Seconds after which a waiting caller is told to retry later: other work comes first."""

PARSER = LLParserLimits(
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=100_000,
    step_max_items=50_000,
    max_items_in_row=2_000,
    max_lexer_states=20_000,
    max_grammar_size=100_000,
    verbose_errors=False,
)
"""Limits of the parser: about 20 ms to build a lexer, and 10 ms for a mask; 20,000 states of a
lexer are 20 to 40 MB.
"""
