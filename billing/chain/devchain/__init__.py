"""A chain of one's own for development.

chain.py         the chain itself: one block a transaction, kept in a file
methods.py       the JSON-RPC methods that it answers
rpc.py           the HTTP server of them
wire.py          values as JSON-RPC writes them
token.py         the token of the development chain
development.py   sees that the contract is deployed there
"""
