"""Pictures in conversations: read from data URLs, bounded, and placed among a prompt's tokens."""
