"""Needed replicas of pools: sized by the demand at all routers, and published as metrics."""
