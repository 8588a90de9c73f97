"""What a wallet on this computer signs and sends. Its key is read from a file and leaves the process nowhere.

key_file.py           reads the key
authorizing.py        draws up and signs the authorization of a job's hold
chain_reader.py       reads a chain through one endpoint
chain_wallet.py       prices, signs, sends one transaction, and waits for it
sending.py            sends one wallet's transactions, each once, also after an interruption
depositing.py         pays tokens into the escrow contract
claiming.py           takes a payout out of it
escrow_contract.py    reads the escrow contract
contract_errors.py    the contract's errors in words
known_contracts.py    which contract a marketplace named for a token, remembered
"""
