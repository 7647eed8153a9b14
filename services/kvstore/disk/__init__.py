"""The disk tier: what memory spills, and how it is loaded again."""
