"""Conversations that clients manage: they create, extend, list and delete them.

Such a conversation is not hidden. Turns of responses move it on, as they move a chain on, but never
branch off it by accident: a turn that was computed from another version is refused. Items that a
client adds have a block of ids of their own.
"""
