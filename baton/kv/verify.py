"""Which copies of KV are checked against their digest."""

ALWAYS = "always"
REMOTE = "remote"
"""Those that crossed a network."""
NEVER = "never"
"""A flipped bit is then a wrong answer: for tests of what would notice one."""
