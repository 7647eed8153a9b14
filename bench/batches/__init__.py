"""Files and batches: what uploads and checks of inputs cost a frontend, and claims of lines."""
