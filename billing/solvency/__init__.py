"""Whether everything that is owed is there, published so that anybody can check it.

totals.py       what is owed and what is there, by asset and kind
tree.py         the Merkle sum tree over all accounts
publishing.py   one signed report of one moment of the hash chain
proving.py      one owner's proof that its accounts are in a report
"""
