"""What engines are sent and what they answer.

upstream.py  the interface to a replica, whatever connection is between
sse.py       server-sent events out of bytes
chunks.py    rewrites an engine's stream for the client, and records what was received
tokens.py    the gateway's own count of tokens
"""
