"""The reference agent: a small agent server that runs commands, which a sandbox runs unless its spec says otherwise.

python -m agents.reference [--host 127.0.0.1] [--port 8000]
"""
