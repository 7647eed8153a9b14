"""What benchmarks share: clusters, plots, statistics, and the command line."""
