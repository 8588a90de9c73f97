"""The ledger held against the outside: rail by rail, in sums and movement by movement."""
