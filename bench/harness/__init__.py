"""Shared parts of benchmarks: clusters, plots, statistics, and the command line."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The repository: modules of `bench` run with this as their working directory."""
