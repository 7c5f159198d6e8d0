"""The reference agent: a small agent server, which a sandbox runs unless its spec says otherwise.

python -m agents.reference [--host 127.0.0.1] [--port 8000]

With a model (`LLM_MODEL`, or `agent.llm` of a start request) it thinks; without one it executes the `run: CMD` lines of
messages. From the outside in: `__main__.py` the program, `api.py` HTTP, `server.py` the conversations,
`conversation.py` the life of one, `log.py` what has happened in it, `journal.py` its file, `events.py` the events,
`webhooks.py` the client that posts them.

What the agent does next is decided by a `Mind` (`mind.py`): the rule there, or `model.py`, which asks a model. Of the
latter: `history.py` makes the messages for the model from the events, `endpoint.py` sends them, `llm.py` says to which
model and with which key, `tools.py` reads its calls. `policy.py` says which actions wait for a person; `terminal.py`
and `files.py` execute them. An agent of yours is another `Mind`, which `server.py` gives to conversations.
"""
