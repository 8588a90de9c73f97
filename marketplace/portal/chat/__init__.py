"""The chat: users talk to the endpoints that their organisation may call, and train models on what was said."""
