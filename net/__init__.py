"""Networking: allowed addresses, and connections with deadlines.

addresses.py    a table of networks, and two policies
carry.py        the accept loop, and the relay between two connections
connections.py  connections with the deadline of a whole call
transport.py    the same for httpx
"""
