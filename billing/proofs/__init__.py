"""Proofs of money that a customer checks without a server: no Django, no database.

solvency.py   a solvency report, and that one's own accounts are in it
sum_tree.py   Merkle trees whose nodes carry sums
merkle.py     Merkle trees as the escrow contract verifies them
escrow.py     what a wallet signs for the escrow contract (EIP-712)
"""
