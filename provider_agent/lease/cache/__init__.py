"""What jobs of one customer leave on this node for later ones: tokens and tokenizers, and Python environments.

owners.py          whose a lease is, and whose entries are in use
intake.py          copies what a program left, out of its reach, into the cache
environments.py    takes what the requirements of an own command installed, as it was before the command began
prepared.py        sends what a training prepared for long to the store, and fetches it for a later attempt of its job
room.py            keeps the cache within its bounds: what was not used for the longest time goes

    DATA/cache/OWNER/KIND/KEY/    an entry: a few regular files, all written by the agent

An own command leaves and sees nothing but the environment of its own requirements: it could leave tokens that are not
those of the data. A training sees the folder of its owner alone, read-only. What it makes lies in its own work folder
until the agent takes it. OWNER is a name that the server makes for this node: two customers never share one, and it
says nothing of who they are. Which entry is whole, and right, is decided by whoever uses it: by the digests in its
manifest.
"""
