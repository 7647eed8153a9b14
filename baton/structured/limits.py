"""What a grammar may cost, chosen so that compiling it and each of its masks take milliseconds.

Measured with llguidance 1.7.6: what these leave compiles within 250 ms on one core, and what costs
more shows in a step, where its fuel ends it.
"""

from llguidance import LLParserLimits

MAX_DEPTH = 100
"""Levels of a JSON Schema's text: the parser ends at 128."""
MAX_PROPERTIES = 1_000
"""Of all objects of a schema together."""
MAX_OPTIONAL_PROPERTIES = 400
"""Of one object: any of them may come next."""
MAX_ITEMS = 10_000
"""Bounds of the arrays of a schema, `minItems` and `maxItems`, together."""
MAX_REPEATS = 10_000
"""A bound of a repetition in a regular expression or in Lark."""
MAX_INTERSECTED = 4
"""Patterns and formats that one string must match at once."""
MAX_ALTERNATIVES = 1_500
"""Of `anyOf` and `oneOf` of a schema together."""
MAX_LARK_ALTERNATIVES = 1_500
"""Bars in a Lark grammar."""

BLAME_SECONDS = 0.05
"""Of processor time, for finding the part of a schema that an error is about."""
COMPILE_SECONDS = 2.0
"""Who waits for longer is told that the grammar is too complex."""

PARSER = LLParserLimits(
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=100_000,
    step_max_items=50_000,
    max_items_in_row=2_000,
    max_lexer_states=20_000,
    max_grammar_size=100_000,
    verbose_errors=False,
)
"""The parser's own: about 20 ms to build a lexer, and 10 ms for a mask; 20,000 states of a lexer
are 20 to 40 MB."""
