"""Writes directly into another store's arena, by NIXL."""
