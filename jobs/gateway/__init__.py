"""The gateway: an async process of its own, without Django and without a database.

The words that all of it shares:

    table.py         what it knows (endpoints, replicas, keys) and what it tells (load, use, audits), as messages
    asked.py         a request that passed the door, and the caller that waits for its answer
    upstream.py      how a request reaches a replica, whatever lies between
    errors.py        refusals in OpenAI's form

The door, from a connection to a request that may be answered:

    process.py       one gateway from its parts, until SIGTERM     inside.py       what lies behind the door
    config.py        what it is told from outside
    app.py           routes, and the order of the checks           refusals.py     what it says no with
    connections.py   bounds on who connects                        clients.py      the caller's end of one request
    grants.py        who holds a key                               limits.py       what the key may use
    checks.py        what a body may say                           directory.py    which model is meant
    listing.py       /v1/models                                    metrics.py      /metrics

An answer, from a request to its last byte:

    serving.py       the story: start here                         work.py         one request under way
    capabilities.py  what it needs of an engine, and what is sent  tokens.py       our own count
    placing.py       who gets which replica, and when              waiting.py      who waits, in turn
    router.py        which replica, as a pure choice               replica_view.py what was seen of each
    trying.py        one replica after the other                   hedging.py      two beside each other
    opening.py       up to the first sign of an answer             probing.py      real tokens where signs are missing
    relaying.py      on to the caller                              streaming.py    a stream to its end
    sse.py           events out of bytes                           chunks.py       rewritten, and noted
    continuing.py    on at another replica                         watching.py     what may interrupt it

What became of it:

    metering.py      one row a part                                spool.py, segments.py   on disk until it is taken
    auditing.py      a share is computed again                     claims.py       what was claimed, what was said of it
    control.py       once a second, the word with the marketplace

`tunnels/` is the end of the ways that agents dial.
"""
