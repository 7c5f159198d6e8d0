"""How this server meets other machines: the addresses that it may reach, and the connections that it makes and carries.

addresses.py    one table of networks, and what two callers make of it
carry.py        the accept loop, and the carriers of bytes between two connections
connections.py  connections that know the deadline of the call that they serve
transport.py    the same for httpx
"""
