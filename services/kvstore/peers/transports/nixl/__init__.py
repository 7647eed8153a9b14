"""Writes straight into another store's arena, by NIXL."""
