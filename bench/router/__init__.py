"""Router benchmarks: placements per second, the index, rejections, and studies of the queue."""
