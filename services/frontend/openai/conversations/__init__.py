"""OpenAI's Conversations: items that clients keep, extend and continue by an id."""
