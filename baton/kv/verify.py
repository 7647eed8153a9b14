"""Policies for verifying copies of KV against their digest."""

ALWAYS = "always"
REMOTE = "remote"
"""Verify copies that crossed a network."""
NEVER = "never"
"""Never verify: a flipped bit then causes a wrong output. For tests that must detect one."""
