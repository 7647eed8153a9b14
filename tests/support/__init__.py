"""What tests of every area stand on: clusters, processes, doubles, waiting."""
