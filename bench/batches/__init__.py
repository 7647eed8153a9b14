"""Files and batches: cost of uploads and checks of inputs, claims of lines, and their order."""
