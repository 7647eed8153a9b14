"""Tools, reasoning and structured output: parsed from outputs, and enforced by grammars."""
