"""Text in and out: chat templates, tokenizers, detokenizing, stop strings."""
