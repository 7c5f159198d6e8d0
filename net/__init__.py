"""How this server meets other machines: the addresses that it may reach, and the connections that it makes and carries.

addresses.py    one table of networks, and what two callers make of it
carry.py        listeners, and bytes carried from one connection to another
transport.py    connections that know the deadline of the call that they serve
"""
