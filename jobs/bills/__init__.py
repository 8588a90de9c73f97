"""What a job cost and what nodes earned, as their payers and payees see it.

bill.py         the bill of a job, a line a lease
earnings.py     what nodes have earned
exports.py      both as signed files
price_views.py  the token prices that a job had
"""
