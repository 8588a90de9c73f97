"""Checkpoints, outputs, inputs and prepared data: their bytes in a store, and the manifests that make them complete.

store.py        the interface of a store, and the keys under which files lie
choice.py       the store that the settings name
local.py        the store on this server's disk
s3.py           the store in an S3-compatible bucket
links.py        signed addresses of the local store
views.py        the pages behind those addresses
urls.py         their routes
manifest.py     which lists of files are accepted
parts.py        one node's part of an artifact: addresses to upload it, and whether its bytes are there
checkpoints.py  what counts as a checkpoint
resumes.py      whether attempts could go on from one
prepared.py     what an attempt prepared for long, for later ones of its job: who may bring it, and who is given it
uploads.py      a node announces and completes a checkpoint, an output or prepared data
inputs.py       a customer announces and completes what a job file names
downloads.py    what a node or a customer downloads
charges.py      what is kept beyond the free allowance is paid for by the day
quotas.py       how much an organisation may keep
prune.py        deletes what nobody keeps any more
copies.py       a second copy in another store
copying.py      the bytes between both stores: copied, or checked and repaired
fallback.py     which of the two stores a file is read from
volumes.py      an organisation's named folders
retention.py    until when outputs and checkpoints of ended jobs are kept
"""
