"""Checks that need no trust in the marketplace: arithmetic, hashes and signatures alone.

bill.py            a bill, and a provider's earnings: lines, fee, sums
lease.py           one lease's line and its receipts
escrow.py          what a contract did for a job, against its lines
export.py          an exported file: its signature, then what it holds
solvency.py        a solvency report, and one's own accounts in it
seen_reports.py    the newest report that was seen, remembered
"""
