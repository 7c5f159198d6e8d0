"""The reference agent: a small agent server that runs commands, which a sandbox runs unless its spec says otherwise.

python -m agents.reference [--host 127.0.0.1] [--port 8000]

From the outside in: `__main__.py` the program, `api.py` HTTP, `server.py` the conversations, `conversation.py` the
agent, `log.py` what has happened in a conversation, `journal.py` its file, `events.py` the events, `webhooks.py` the
client that posts them. An agent of yours replaces `conversation.py`.
"""
