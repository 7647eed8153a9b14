"""Event loops of tests: advanced by hand, and measured."""
