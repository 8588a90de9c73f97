"""How many small mistakes in the code that guards money and access the tests nearest to it notice.

    run.py            makes the mistakes one by one, runs the tests, keeps the score
    forks.py          runs tests in forks of a process that has imported what they need
    servers.py        PostgreSQL and Redis for all of these runs
    reasons.py        why some of them may go unnoticed
    targets.py        what is mutated, and which tests have to notice
    requirements.txt  cosmic-ray, which knows the mistakes; installed into an environment of its own

`make mutants` runs it and writes `benchmarks/results/mutation.json`; `benchmarks/README.md` says what it found.
"""
