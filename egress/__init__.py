"""The egress proxy of sandboxes whose spec says `egress = "named"`, beside the supervisor. docs/egress.md.

client_hello.py  the server name of a TLS ClientHello
resolver.py      name resolution, address checks, and connections
services.py      requests to a service, with its credentials
spending.py      the token usage in responses of models, and the budgets
proxy.py         a connection of a sandbox: a service, a plain request, or a tunnel
__main__.py      the process
"""
