"""Who may call what: every route of the web process, by method and by caller.

table.py         the rows: method and route -> what its caller needs
callers.py       everybody who might call, and what each of them has
test_matrix.py   each route for each caller
"""
