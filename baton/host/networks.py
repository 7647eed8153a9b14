"""Names of networks."""

PUBLIC = "public"
"""All public addresses, among networks."""
