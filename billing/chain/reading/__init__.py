"""Reading a chain: several endpoints, believed where they agree.

client.py         one chain through all of its endpoints
transport.py      one question to one endpoint, bounded
answers.py        endpoints' answers as records
builds.py         the compiled contracts' interfaces and bytes
confirmation.py   whether what a chain reported still counts
"""
