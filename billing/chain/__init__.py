"""Tokens: the escrow contract, our transactions, and what the chain tells us. The only rooms that know web3."""
