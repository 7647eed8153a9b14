"""How the tokens of a step and a tokenizer's files are written into messages, and read again."""
