"""Volumes: named folders in the store, from this computer, from S3, or from what a job left.

commands.py   volumes put, list, show, get, delete
put.py        files become a volume's newest version; what it holds already is not sent
s3.py         the objects below an S3 address as files to send: streamed, with the customer's own credentials
read_keys.py  the SHA-256 of objects that were read before
"""
