"""What is paid for a lease, and what proves it.

amounts.py            amounts as people write and read them
earnings.py           what a node's provider has earned
payment.py            what a lease is paid in: dollars, or a token
receipts.py           usage receipts, signed under EIP-712
usage_statements.py   token usage statements, signed under EIP-712
wallets.py            what a payout wallet signs
"""
