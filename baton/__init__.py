"""The library that every Baton service stands on."""

__version__ = "0.1.0"
