"""The disk tier: objects spilled from memory, and loaded again."""
