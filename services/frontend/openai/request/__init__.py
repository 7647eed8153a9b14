"""Read the bodies of the OpenAI API: what is in them, what is refused, what they ask for."""
