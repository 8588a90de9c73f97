"""The routes of supply.

agents.py         what nodes call: enrolment, measurements, device checks, terms, retirement
messages.py       protocol messages as requests and answers of REST views
people.py         what customers can rent, and what providers do with their nodes
serializers.py    the fields of people's requests and answers
"""
