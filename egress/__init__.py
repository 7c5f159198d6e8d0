"""The way out of sandboxes whose spec says `egress = "named"`: a proxy beside the supervisor. docs/egress.md.

client_hello.py  the name in the first message of TLS
resolver.py    from a name to a connection: its addresses are looked up and checked here
services.py    requests that get a credential here, toward one base URL
spending.py    what responses of models say of their usage, and the budgets
proxy.py       one connection of a sandbox: a service, a plain request by name, or a tunnel
__main__.py    the process
"""
