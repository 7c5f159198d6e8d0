"""A mind of the reference agent that is another program, which speaks the Agent Client Protocol over stdio.

`agents.toml` lists the agents, and `agents.py` reads it. `client.py` runs the program and carries messages.
`permissions.py` maps a permission request to an action, and a decision to an option. `updates.py` maps the program's
reports to events. `conversation.py` writes them to the log of a conversation.

Source: https://agentclientprotocol.com, protocol version 1, schema 1.19.
"""
