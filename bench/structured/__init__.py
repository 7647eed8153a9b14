"""Benchmarks of structured output: whether grammars hold, their cost, and hostile grammars."""
