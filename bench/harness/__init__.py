"""Shared parts of benchmarks: clusters, plots, statistics, and the command line."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The repository, which is the working directory of modules of `bench`."""
