"""With what a job pays, without a database: server and client count by the same code.

terms.py        amounts in dollars and in base units, at a locked price
price_rules.py  when a locked token price is kept, and what is held at it
"""
