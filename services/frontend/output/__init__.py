"""Tools, reasoning and forms: what stands in an output beside its text, read and enforced."""
