"""What requests used and cost: records on a frontend's disk, brought to sinks, summed up."""
