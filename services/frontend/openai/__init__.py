"""The OpenAI API: request bodies in, responses out. Independent of sockets."""
